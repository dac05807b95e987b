#!/usr/bin/env python3
"""A validating admission webhook: images come from known registries and have a tag that stays.

Needs nothing but the standard library. `judge` decides, `answer` makes the review of it, the rest is HTTPS.
"""

import argparse
import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_REVIEW_BYTES = 8 * 1024 * 1024


def images(pod):
    """Every image of a Pod, with the name of its container."""
    spec = pod.get("spec") or {}
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or []:
            yield container.get("name", ""), container.get("image", "")


def judge(pod, registries):
    """What is wrong with a Pod's images; empty if nothing is."""
    problems = []
    for name, image in images(pod):
        if not any(image.startswith(registry) for registry in registries):
            problems.append(f'container "{name}": {image} is not from an allowed registry')
            continue
        reference = image.rsplit("/", 1)[-1]
        if "@" not in reference and (":" not in reference or reference.endswith(":latest")):
            problems.append(f'container "{name}": {image} needs a tag other than latest, or a digest')
    return problems


def answer(review, registries):
    """The review that goes back."""
    request = review.get("request") or {}
    problems = judge(request.get("object") or {}, registries)
    response = {"uid": request.get("uid", ""), "allowed": not problems}
    if problems:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": "; ".join(problems)}
    return {"apiVersion": review.get("apiVersion"), "kind": "AdmissionReview", "response": response}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registries = ()

    def do_POST(self):
        try:
            length = int(self.headers.get("Content-Length", "0"))
            if not 0 < length <= MAX_REVIEW_BYTES:
                raise ValueError("no review of a sensible size")
            body = json.dumps(answer(json.loads(self.rfile.read(length)), self.registries)).encode()
            status, content_type = 200, "application/json"
        except ValueError as error:
            body, status, content_type = str(error).encode(), 400, "text/plain"
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *arguments):
        print(self.address_string(), format % arguments, file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:9445")
    parser.add_argument("--cert", required=True, help="certificate chain, PEM")
    parser.add_argument("--key", required=True, help="its key, PEM")
    parser.add_argument("--registry", action="append", help="an allowed prefix of image names; may be given more than once")
    options = parser.parse_args()
    Handler.registries = tuple(options.registry or ["registry.k8s.io/"])
    host, port = options.listen.rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.cert, options.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
