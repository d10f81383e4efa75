"""Whether coua.yaml is what Kubernetes takes, by the schemas of its oldest and newest version that are here, and whether
what belongs together in it fits.

    check.py [COUA]        with COUA, its arguments are tried, too
"""

import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import kubernetes_validate
import yaml

VERSIONS = ("1.28", "1.37")
# Megabytes of limits.memory besides -m.
BESIDE = 64


def check(condition, text):
    if not condition:
        sys.exit(f"coua.yaml: {text}")


def mebibytes(text):
    return int(re.fullmatch(r"(\d+)Mi", text).group(1))


def main():
    documents = list(yaml.safe_load_all((pathlib.Path(__file__).parent / "coua.yaml").read_text()))
    for document in documents:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
    kinds = {document["kind"]: document for document in documents}
    check(len(kinds) == len(documents) == 4, f"it has {sorted(kinds)}")

    spec = kinds["StatefulSet"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    selectors = [
        spec["selector"]["matchLabels"],
        kinds["Service"]["spec"]["selector"],
        kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        spec["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ]
    check(all(selector.items() <= labels.items() for selector in selectors), "a selector finds no pods")
    check(spec["serviceName"] == kinds["Service"]["metadata"]["name"], "serviceName is another one")

    container = spec["template"]["spec"]["containers"][0]
    arguments = container["args"]
    value = dict(zip(arguments[::2], arguments[1::2]))
    memory = int(value["-m"])
    limit = mebibytes(container["resources"]["limits"]["memory"])
    check(limit == memory + BESIDE, f"limits.memory is {limit}Mi with -m {memory}")
    check(mebibytes(container["resources"]["requests"]["memory"]) == limit, "requests.memory is not limits.memory")
    room = mebibytes(spec["template"]["spec"]["volumes"][0]["emptyDir"]["sizeLimit"])
    check(memory < room < limit, f"sizeLimit is {room}Mi with -m {memory}")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    check(value["--metrics"].endswith(f":{ports['metrics']}"), "--metrics has another port")
    mount = container["volumeMounts"][0]["mountPath"]
    check(value["-e"].startswith(mount + "/"), "-e is not on the volume")
    probes = {name: container[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe", "startupProbe")}

    if len(sys.argv) > 1:
        # The same arguments on free ports, and what the probes ask for.
        with tempfile.TemporaryDirectory() as folder, socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0)), two.bind(("127.0.0.1", 0))
            port, metrics = one.getsockname()[1], two.getsockname()[1]
            one.close(), two.close()
            changed = {"-e": f"{folder}/memory", "--metrics": f"127.0.0.1:{metrics}", "-l": "127.0.0.1", "-p": str(port)}
            words = [word for pair in (value | changed | {"-u": "root"}).items() for word in pair]
            coua = subprocess.Popen([sys.argv[1], *words], stderr=subprocess.DEVNULL)
            try:
                for path in probes.values():
                    until = time.monotonic() + 60
                    while True:
                        try:
                            with urllib.request.urlopen(f"http://127.0.0.1:{metrics}{path}", timeout=5) as answer:
                                check(answer.status == 200, f"{path} is answered {answer.status}")
                                break
                        except OSError as error:
                            check(coua.poll() is None, f"coua ends with {coua.returncode} for these arguments")
                            check(time.monotonic() < until, f"{path}: {error}")
                            time.sleep(0.05)
            finally:
                coua.kill()
                coua.wait()
    print(f"coua.yaml: {len(documents)} documents, right for Kubernetes {' and '.join(VERSIONS)}; what belongs together fits")


main()
