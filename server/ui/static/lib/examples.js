// Tools and schemas to try.

const tool = (name, description, properties) => ({
  type: "function",
  function: {
    name,
    description,
    parameters: { type: "object", properties, required: Object.keys(properties), additionalProperties: false },
  },
});

export const TOOLS = {
  Weather: [
    tool("get_weather", "The weather in a city now.", {
      city: { type: "string", maxLength: 30 },
      unit: { type: "string", enum: ["celsius", "fahrenheit"] },
    }),
  ],
  Calculator: [
    tool("calculate", "The result of one operation on two numbers.", {
      operation: { type: "string", enum: ["add", "subtract", "multiply", "divide"] },
      left: { type: "number" },
      right: { type: "number" },
    }),
  ],
  "Shop, two tools": [
    tool("find_product", "Products whose names contain a text.", { text: { type: "string", maxLength: 30 } }),
    tool("order_product", "Order a number of one product.", {
      product_id: { type: "integer" },
      quantity: { type: "integer", minimum: 1 },
    }),
  ],
};

export const SCHEMAS = {
  Person: {
    type: "object",
    properties: {
      name: { type: "string", maxLength: 40 },
      age: { type: "integer", minimum: 0, maximum: 120 },
      hobbies: { type: "array", items: { type: "string", maxLength: 20 }, maxItems: 3 },
    },
    required: ["name", "age", "hobbies"],
    additionalProperties: false,
  },
  Verdict: {
    type: "object",
    properties: {
      verdict: { type: "string", enum: ["yes", "no", "unclear"] },
      confidence: { type: "number", minimum: 0, maximum: 1 },
    },
    required: ["verdict", "confidence"],
    additionalProperties: false,
  },
  "Three steps": {
    type: "object",
    properties: {
      steps: { type: "array", minItems: 3, maxItems: 3, items: { type: "string", maxLength: 60 } },
    },
    required: ["steps"],
    additionalProperties: false,
  },
};

/** A result that the person at the page can change before sending it. */
export function sampleResult(name) {
  if (name === "get_weather") return '{"temperature": 18, "sky": "clear"}';
  if (name === "calculate") return "42";
  if (name === "find_product") return '[{"product_id": 7, "name": "Lamp"}]';
  return '{"status": "ok"}';
}

export const indented = (value) => JSON.stringify(value, null, 2);
