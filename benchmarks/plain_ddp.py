"""The same DDP steps as the benchmark suite measures, written by hand: what the suite is compared with.

torchrun --standalone --nproc-per-node=2 benchmarks/plain_ddp.py --model small_resnet --batch 64
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from mgpu_utils.data import synthetic_images
from mgpu_utils.models import MODELS, build

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="small_resnet", choices=list(MODELS))
parser.add_argument("--batch", type=int, default=64, help="samples a rank and step")
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--warmup", type=int, default=2)
options = parser.parse_args()

on_gpu = torch.cuda.device_count() >= 2
wait_for_device = torch.cuda.synchronize if on_gpu else lambda: None
torch.set_num_threads(1)
dist.init_process_group("nccl" if on_gpu else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
spec = MODELS[options.model]
images, labels = synthetic_images(4 * options.batch, spec.sample_shape, spec.classes, seed=dist.get_rank()).tensors
batches = list(zip(images.to(device).split(options.batch), labels.to(device).split(options.batch), strict=True))
model = DistributedDataParallel(build(options.model, seed=0).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def step(number: int) -> None:
    images, labels = batches[number % len(batches)]
    optimizer.zero_grad()
    F.cross_entropy(model(images), labels).backward()
    optimizer.step()


for number in range(options.warmup):
    step(number)
dist.barrier()
wait_for_device()
started = time.perf_counter()
for number in range(options.steps):
    step(number)
wait_for_device()
seconds = torch.tensor(time.perf_counter() - started, device=device)
dist.all_reduce(seconds, dist.ReduceOp.MAX)
if dist.get_rank() == 0:
    rate = dist.get_world_size() * options.batch * options.steps / seconds.item()
    print("RESULT", json.dumps({"samples_per_second": rate}), flush=True)
dist.barrier()
dist.destroy_process_group()
