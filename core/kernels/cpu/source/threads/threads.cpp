// Binds the threads of a team to NUMA nodes. See core/kernels/cpu/threads.py.
#include "team.h"
#include "vec.h"

#include <sched.h>

// Threads of node n end before thread_ends[n], its CPUs in `cpus` before cpu_ends[n]. Threads that
// OpenMP binds (OMP_PROC_BIND) stay where they are.
ROSE_EXPORT void rose_bind(int64_t num_nodes, const int64_t* thread_ends, const int64_t* cpus,
                           const int64_t* cpu_ends) {
  if (omp_get_proc_bind() != omp_proc_bind_false) return;
  team::node_ends().assign(thread_ends, thread_ends + num_nodes);
#pragma omp parallel num_threads((int)thread_ends[num_nodes - 1])
  {
    int64_t n = 0;
    while (thread_ends[n] <= omp_get_thread_num()) n++;
    int64_t first = n ? cpu_ends[n - 1] : 0,
            most = *std::max_element(cpus + first, cpus + cpu_ends[n]);
    cpu_set_t* set = CPU_ALLOC(most + 1);
    size_t size = CPU_ALLOC_SIZE(most + 1);
    CPU_ZERO_S(size, set);
    for (int64_t i = first; i < cpu_ends[n]; i++) CPU_SET_S(cpus[i], size, set);
    sched_setaffinity(0, size, set);  // a system that refuses leaves the thread where it is
    CPU_FREE(set);
  }
}
