# The routes of a server, with curl.
url=${OPENAI_BASE_URL:-http://127.0.0.1:8000/v1}

echo "models:"
curl "$url/models" -H "Authorization: Bearer ${OPENAI_API_KEY:-none}"

echo; echo "a whole answer:"
curl "$url/chat/completions" -H "Authorization: Bearer ${OPENAI_API_KEY:-none}" \
  -H 'Content-Type: application/json' \
  -d '{"max_tokens": 20, "messages": [{"role": "user", "content": "Hello!"}]}'

echo; echo "a stream:"
curl -N "$url/chat/completions" -H "Authorization: Bearer ${OPENAI_API_KEY:-none}" \
  -H 'Content-Type: application/json' \
  -d '{"stream": true, "max_tokens": 5, "messages": [{"role": "user", "content": "Hello!"}]}'

echo "a completion with log-probabilities:"
curl "$url/completions" -H "Authorization: Bearer ${OPENAI_API_KEY:-none}" \
  -H 'Content-Type: application/json' \
  -d '{"prompt": "Once upon a time", "max_tokens": 3, "logprobs": 2}'

echo; echo "token ids of a text:"
curl "$url/tokenize" -H "Authorization: Bearer ${OPENAI_API_KEY:-none}" \
  -H 'Content-Type: application/json' -d '{"prompt": "Once upon a time"}'

echo; echo "health and counters:"
curl "$url/health"
curl "${url%/v1}/stats" -H "Authorization: Bearer ${OPENAI_API_KEY:-none}"
