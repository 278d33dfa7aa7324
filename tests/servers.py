"""Real model servers on this machine: the Open Inference Protocol v2, MLflow's own, and ones that misbehave."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

Predict = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]  # inputs by name in, outputs by name out


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Reply:
    """One answer; bytes are sent as they are, anything else as JSON."""

    content: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class HangUp(Exception):
    """Close the connection without an answer."""


@dataclass
class Server:
    """A server that is running, and what it was asked."""

    root: str
    asked: list[Asked] = field(default_factory=list)

    @property
    def predictions(self) -> int:
        return sum(asked.method == "POST" for asked in self.asked)


@contextmanager
def serving(answer: Callable[[Asked], Reply]) -> Iterator[Server]:
    """Run a server that answers every request by a function, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.respond(None)

        def do_POST(self) -> None:
            self.respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def respond(self, body: Any) -> None:
            asked = Asked(self.command, self.path, dict(self.headers), body)
            server.asked.append(asked)
            try:
                reply = answer(asked)
            except HangUp:
                return
            content = reply.content if isinstance(reply.content, bytes) else json.dumps(reply.content).encode()
            headers = {"Content-Type": "application/json", "Content-Length": str(len(content))} | reply.headers
            self.send_response(reply.status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            """Print nothing."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *args: Any) -> None:
            """Print nothing: clients that give up are part of the tests."""

    with Quiet(("127.0.0.1", 0), Handler) as http:
        server = Server(f"http://127.0.0.1:{http.server_port}")
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


def start(answer: Callable[[Asked], Reply]) -> Server:
    """Return a server that runs until this process ends."""
    running = serving(answer)
    atexit.register(running.__exit__, None, None, None)
    return running.__enter__()


def free_address() -> str:
    """Return the root of a URL at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


# --- Open Inference Protocol v2 -------------------------------------------------------------------------------------

_NUMPY = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64, "BOOL": np.bool_, "BYTES": np.object_}


def open_inference(
    predict: Predict, inputs: list[tuple[str, str, list[int]]] | None, *, outputs: tuple[str, ...] | None = None
) -> Callable[[Asked], Reply]:
    """Return a v2 server with one model, `rule`; without `inputs` it has no metadata.

    It insists on the protocol: paths, declared names, datatypes and shapes, whole numbers for INT64.
    """
    declared = [{"name": name, "datatype": datatype, "shape": shape} for name, datatype, shape in inputs or []]

    def answer(asked: Asked) -> Reply:
        model = asked.path.partition("?")[0].removesuffix("/infer")
        if model not in ("/v2/models/rule", "/v2/models/rule/versions/1"):
            return Reply({"error": "unknown model"}, 404)
        if asked.method == "GET":
            known = {"name": "rule", "versions": ["1"], "platform": "numpy", "inputs": declared, "outputs": []}
            return Reply({"error": "no metadata"}, 404) if inputs is None else Reply(known)
        try:
            given = {one["name"]: _array(one, declared) for one in asked.body["inputs"]}
            if declared and set(given) != {one["name"] for one in declared}:
                raise ValueError(f"inputs are {sorted(given)}")
            found = predict(given)
        except ValueError as error:
            return Reply({"error": str(error)}, 400)
        wanted = [one["name"] for one in asked.body.get("outputs", [])] or list(outputs or found)
        return Reply({"model_name": "rule", "outputs": [_tensor(name, found[name]) for name in wanted]})

    return answer


def _array(given: dict[str, Any], declared: list[dict[str, Any]]) -> np.ndarray:
    kind = _NUMPY[given["datatype"]]
    if given["datatype"] == "INT64" and not all(value is None or isinstance(value, int) for value in given["data"]):
        raise ValueError(f"{given['name']} takes whole numbers")
    if given["datatype"] == "BYTES" and not all(value is None or isinstance(value, str) for value in given["data"]):
        raise ValueError(f"{given['name']} takes text")
    array = np.array(given["data"], dtype=kind).reshape(given["shape"])
    for one in declared:
        fits = len(one["shape"]) == array.ndim and all(
            size in (-1, found) for size, found in zip(one["shape"], array.shape, strict=True)
        )
        if one["name"] == given["name"] and not (fits and one["datatype"] == given["datatype"]):
            raise ValueError(f"{one['name']} is {one['datatype']} {one['shape']}, not {given['shape']}")
    return array


def _tensor(name: str, values: np.ndarray) -> dict[str, Any]:
    datatype = {"f": "FP64", "i": "INT64", "b": "BOOL"}.get(values.dtype.kind, "BYTES")
    return {"name": name, "datatype": datatype, "shape": list(values.shape), "data": values.reshape(-1).tolist()}


# --- MLflow's scoring server ----------------------------------------------------------------------------------------


def start_mlflow(estimator: Any, *, function: str = "predict_proba") -> str:
    """Return the URL of MLflow's own server in another process, which ends with this one."""
    import joblib

    folder = tempfile.TemporaryDirectory(prefix="fairfox-mlflow-")
    joblib.dump(estimator, Path(folder.name) / "estimator.joblib")
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "OMP_NUM_THREADS": "1"}
    with (Path(folder.name) / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, __file__, folder.name, function],
            stdin=subprocess.PIPE,  # it ends when this pipe does, whatever becomes of us
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=folder.name,
            env=os.environ | quiet,
        )

    def stop() -> None:
        process.terminate()
        process.communicate(timeout=10)
        folder.cleanup()

    atexit.register(stop)
    assert process.stdout is not None
    root = process.stdout.readline().strip()  # printed once it can be asked
    if not root:
        raise RuntimeError((Path(folder.name) / "log").read_text())
    return f"{root}/invocations"


def _serve_mlflow(folder: Path, function: str) -> None:
    """Save an estimator as an MLflow model and serve it as `mlflow models serve --env-manager local` does."""
    import joblib
    import mlflow.sklearn
    import uvicorn
    from mlflow.pyfunc import scoring_server

    estimator = joblib.load(folder / "estimator.joblib")
    mlflow.sklearn.save_model(
        estimator, folder / "model", pyfunc_predict_fn=function, serialization_format="cloudpickle", pip_requirements=[]
    )
    app = scoring_server.init(scoring_server.load_model_with_mlflow_config(str(folder / "model")))
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()  # calls wait from now on until the server takes them
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    _serve_mlflow(Path(sys.argv[1]), sys.argv[2])
