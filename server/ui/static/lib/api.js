// Requests to the server that this page comes from, with the API key of this tab.

import { eventsOf } from "./sse.js";

const KEY = "roseinfer.key";

/** A refusal, or an error event in a stream. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The key lives as long as this tab; other tabs and later visits do not have it. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY)),
};

let onUnauthorized = () => {};

/** Call `listener` whenever the server asks for a key. */
export function whenUnauthorized(listener) {
  onUnauthorized = listener;
}

/** The address of a route, beside this page. */
export function urlOf(route) {
  return new URL(route.replace(/^\//, ""), document.baseURI).href;
}

/** The JSON of a route. Raises ApiError. */
export async function getJson(route, signal) {
  return (await request(route, { signal })).json();
}

/** The chunks of a streamed answer. Raises ApiError, also in the middle; AbortError when stopped. */
export async function* stream(route, body, signal) {
  const response = await request(route, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  for await (const data of eventsOf(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(200, String(chunk.error.message));
    yield { chunk, requestId: response.headers.get("x-request-id") };
  }
  throw new ApiError(200, "The connection ended in the middle of the answer.");
}

async function request(route, options) {
  const headers = { ...options.headers };
  if (key.get()) headers.authorization = `Bearer ${headerText(key.get())}`;
  const response = await fetch(urlOf(route), {
    ...options,
    headers,
    credentials: "omit",
    cache: "no-store",
    redirect: "error",
  });
  if (response.ok) return response;
  if (response.status === 401) onUnauthorized(Boolean(key.get()));
  throw new ApiError(response.status, await messageOf(response));
}

/** A header has bytes, which a browser takes as the characters 0 to 255. */
function headerText(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

async function messageOf(response) {
  try {
    const body = await response.json();
    const error = body.error?.message ?? body.error ?? body.status;
    if (typeof error === "string") return error;
  } catch {
    // not JSON: something between this page and the server has answered
  }
  return `The server answered ${response.status}.`;
}
