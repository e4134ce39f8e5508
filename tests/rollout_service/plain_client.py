"""A trainer without Ludus: the standard library only, run as `python -I -S plain_client.py URL REQUEST`.

It reads a stream, gives up its connection after some lines and resumes, and prints what it found as JSON.
"""

import http.client
import json
import sys
from urllib.parse import urlsplit


def lines_of(address, method, path, body=None):
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=50)
    try:
        connection.request(method, path, body)
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        for line in reply:
            yield json.loads(line)
    finally:
        connection.close()


def main(url, body, lost_after):
    address, job, lines = urlsplit(url), "", []
    stream = lines_of(address, "POST", "/rollouts", body)
    while not lines or lines[-1]["type"] != "end":
        for line in stream:
            if line["type"] == "job":
                job = line["job"]
                continue
            lines.append(line)
            if len(lines) % lost_after == 0:
                break
        stream.close()
        stream = lines_of(address, "GET", f"/rollouts/{job}/lines?from={len(lines)}")
    stream.close()
    try:
        import ludus

        found = repr(ludus)
    except ModuleNotFoundError:
        found = None
    tokens = 0
    for line in lines[:-1]:
        for sample in line["samples"]:
            assert len(sample["ids"]) == len(sample["mask"]) == len(sample["logprobs"])
            tokens += sum(sample["mask"])
    report = {"ludus": found, "tokens": tokens, "end": lines[-1], "lines": [line["line"] for line in lines]}
    report["indices"] = sorted(line["index"] for line in lines[:-1])
    report["rewards"] = [line["reward"] for line in lines[:-1]]
    json.dump(report, sys.stdout)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
