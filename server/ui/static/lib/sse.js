// Server-sent events, as far as chat streams use them: `data:` lines, comments, empty lines.

/** Takes text as it arrives and returns the data of the events that are complete. */
export class SseParser {
  #rest = "";
  #data = [];

  /** The data of each event that ends in this piece. */
  feed(text) {
    const lines = (this.#rest + text).split(/\r\n|\n/);
    this.#rest = lines.pop();
    const events = [];
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length > 0) events.push(this.#data.join("\n"));
        this.#data = [];
      } else if (line.startsWith("data:")) {
        this.#data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
    return events;
  }
}

/** The data of the events of a response, in order. Ends with the response. */
export async function* eventsOf(response) {
  const parser = new SseParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.feed(value);
    }
  } finally {
    reader.cancel().catch(() => {}); // the request may have been stopped already
  }
}
