// Stream an answer with OpenAI's package for Node.js: npm install openai
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: process.env.OPENAI_BASE_URL ?? "http://127.0.0.1:8000/v1",
  apiKey: process.env.OPENAI_API_KEY ?? "none",
});
const models = await client.models.list();
const stream = await client.chat.completions.create({
  model: models.data[0].id,
  messages: [{ role: "user", content: "Tell me a story about a fox." }],
  max_tokens: 100,
  stream: true,
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
}
console.log();
