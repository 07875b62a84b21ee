// Logits of llama.cpp for benchmarks/quality.py: FILE THREADS. Reads a count and token ids (int32) from stdin until it
// ends, and writes the logits of every token (float32) to stdout. With $TREE and $BUILD of llama.cpp, built as in
// benchmarks/peers.md:
//
//   g++ -O2 -fopenmp -I$TREE/include -I$TREE/ggml/include benchmarks/llama_logits.cpp -o llama_logits $BUILD/src/libllama.a \
//     $BUILD/ggml/src/libggml.a $BUILD/ggml/src/libggml-cpu.a $BUILD/ggml/src/libggml-base.a -ldl -lpthread
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  llama_backend_init();
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params weights = llama_model_default_params();
  weights.use_extra_bufts = false;  // the products of AMX crash in the version of benchmarks/peers.md
  llama_model* model = llama_model_load_from_file(argv[1], weights);
  if (!model) return 1;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = 1024;
  params.n_threads = params.n_threads_batch = std::atoi(argv[2]);
  llama_context* context = llama_init_from_model(model, params);
  if (!context) return 1;
  const int num_tokens = llama_vocab_n_tokens(llama_model_get_vocab(model));
  int32_t count;
  while (std::fread(&count, 4, 1, stdin) == 1) {
    std::vector<int32_t> ids(count);
    if ((int32_t)std::fread(ids.data(), 4, count, stdin) != count) return 1;
    llama_memory_clear(llama_get_memory(context), true);
    llama_batch batch = llama_batch_init(count, 0, 1);
    for (int i = 0; i < count; i++) {
      batch.token[i] = ids[i];
      batch.pos[i] = i;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = true;
    }
    batch.n_tokens = count;
    if (llama_decode(context, batch)) return 1;
    for (int i = 0; i < count; i++) std::fwrite(llama_get_logits_ith(context, i), 4, num_tokens, stdout);
    std::fflush(stdout);
    llama_batch_free(batch);
  }
}
