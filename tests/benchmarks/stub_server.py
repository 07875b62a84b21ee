"""A server that streams max_tokens words: python stub_server.py PORT."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200 if self.path == "/health" else 404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["stream"]
        assert "temperature" in body
        self.answer(200, "text/event-stream")
        count = body["max_tokens"]
        for number in range(count):
            reason = "length" if number == count - 1 else None
            self.event(choices=[{"index": 0, "text": " word", "finish_reason": reason}])
        prompt = len(body["prompt"].split())
        self.event(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": count})
        self.wfile.write(b"data: [DONE]\n\n")

    def answer(self, status, kind="text/plain"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def event(self, **what):
        self.wfile.write(b"data: " + json.dumps(what).encode() + b"\n\n")

    def log_message(self, form, *arguments):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
