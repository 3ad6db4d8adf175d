"""Writes federated.json: what Flower's servers make of the same results of nodes, round by round.

pip install flwr==1.8.0 numpy; python tests/reference/federated.py
FedAdam of this version does not correct the first steps for their bias, as Reddi et al. 2021 (algorithm 2) does not.
"""
import json
import pathlib

import flwr
import numpy
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import FedAdam, FedAvg, FedAvgM

random = numpy.random.default_rng(7)
SIZE, ROUNDS, CLIPS = 6, 4, [3, 10, 7]
start = random.normal(size=SIZE).astype(numpy.float32)
rounds = [[random.normal(size=SIZE).astype(numpy.float32) for _ in CLIPS] for _ in range(ROUNDS)]


def row(array):
    return [float(value) for value in array]


def models(strategy, clips):
    """The server's model after each round."""
    after = []
    for number, results in enumerate(rounds, 1):
        fits = [
            (None, FitRes(Status(Code.OK, ""), ndarrays_to_parameters([result]), count, {}))
            for result, count in zip(results, clips)
        ]
        parameters, _ = strategy.aggregate_fit(number, fits, [])
        model = parameters_to_ndarrays(parameters)[0]
        after.append(row(model))
        # FedAvgM measures its differences from here, and FedAdam keeps its own.
        strategy.initial_parameters = parameters
    return after


def first():
    return ndarrays_to_parameters([start])


cases = [
    {"server": {"average": {}}, "clips": CLIPS, "models": models(FedAvg(), CLIPS)},
    {"server": {"average": {}}, "clips": [1, 1, 1], "models": models(FedAvg(), [1, 1, 1])},
    {
        "server": {"momentum": {"learning_rate": 0.7, "momentum": 0.9}},
        "clips": CLIPS,
        "models": models(FedAvgM(initial_parameters=first(), server_learning_rate=0.7, server_momentum=0.9), CLIPS),
    },
    {
        "server": {"adam": {"learning_rate": 0.1, "beta_1": 0.9, "beta_2": 0.99, "tau": 1e-3}},
        "clips": CLIPS,
        "models": models(FedAdam(initial_parameters=first(), eta=0.1, beta_1=0.9, beta_2=0.99, tau=1e-3), CLIPS),
    },
]
result = {
    "versions": {"flwr": "1.8.0", "numpy": numpy.__version__},
    "start": row(start),
    "rounds": [[row(result) for result in results] for results in rounds],
    "cases": cases,
}
pathlib.Path(__file__).with_name("federated.json").write_text(json.dumps(result) + "\n")
