# SPDX-License-Identifier: Apache-2.0
"""What is the same in every chapter: the part of this process in the job, its samples, and the way of the model out."""

import itertools
import os
import random

import paddle.fluid as fluid

role = os.getenv("TRAINING_ROLE", "ALONE")
trainers = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
trainer_id = int(os.getenv("PADDLE_TRAINER_ID", "0"))
random.seed(trainer_id)  # of the order in which readers shuffle


def mine(reader):
    """Every trainer takes the samples whose number is its own, so that all together take each once."""
    return lambda: itertools.islice(reader(), trainer_id, None, trainers)


def run(exe, train_loop, *programs):
    """Trains alone or as a trainer by ``train_loop(*programs)``, or serves parameters until all trainers are done.

    Without programs, the default one is trained. Several share out the servers, each of which serves one of them.
    """
    programs = programs or (fluid.default_main_program(),)
    if role == "ALONE":
        exe.run(fluid.default_startup_program())
        train_loop(*programs)
        return
    endpoints = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
    transpilers = []
    for number, program in enumerate(programs):
        t = fluid.DistributeTranspiler()
        served_by = ",".join(endpoints[number :: len(programs)])
        t.transpile(trainer_id, program=program, pservers=served_by, trainers=trainers)
        transpilers.append(t)
    if role == "PSERVER":
        current_endpoint = os.environ["PADDLE_CURRENT_ENDPOINT"]
        t = transpilers[endpoints.index(current_endpoint) % len(programs)]
        pserver_prog = t.get_pserver_program(current_endpoint)
        exe.run(t.get_startup_program(current_endpoint, pserver_prog))
        exe.run(pserver_prog)
    else:
        trained = [t.get_trainer_program() for t in transpilers]
        exe.run(fluid.default_startup_program())
        train_loop(*trained)
        exe.close()


def export(exe, trained, feeds, targets, test_program):
    """Saves what servers and trainers hold, and from that a model to infer with; trainer 0's business."""
    if trainer_id:
        return False
    fluid.io.save_persistables(exe, "output/parameters", trained)
    with fluid.scope_guard(fluid.core.Scope()):
        fluid.io.load_persistables(exe, "output/parameters", test_program)
        fluid.io.save_inference_model("output/model", feeds, targets, exe, main_program=test_program)
    return True
