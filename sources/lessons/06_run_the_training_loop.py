# %% [markdown]
# # Run the training loop on every rank
#
# You have fed every device (lesson 03), placed a model on each rank (04), and shared a batch in one process
# (05). This lesson puts the loop around it, and runs it on every rank.
#
# **You'll do**
#
# 1. run an unchanged training loop on two ranks, and count what each rank trained on
# 2. write one loop that runs on one device, with DataParallel and with DDP
# 3. watch two ranks at work on one clock
# 4. find out what rank 0 may do alone: log, save, evaluate
# 5. move from cells to a script under [`torchrun`](../docs/glossary.md#torchrun), and read its log
#
# **You'll learn** what changes in a training loop and what does not, and which calls all ranks have to
# make together.
#
# **You need** about 60 minutes, two CPU cores, and lessons 00 to 05. Cells that differ on GPUs: none.

# %% [markdown]
# ## The claim
#
# > Move inputs and targets to the device, and the training loop stays the same.
#
# Do you believe it? Commit yourself before you go on.

# %%
import mgpu_utils as mgpu

mgpu.predict("06/images", int, answer=...,
             question="Two ranks run the unchanged loop. 1,437 images: how many does rank 1 train on?")

# %% [markdown]
# ## The loop of one device
#
# One epoch over the digits, written for one device. The line with `.to(device)` is the one that the claim
# talks about.

# %%
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

def single_loop(model, dataset, device):
    loader = DataLoader(dataset, batch_size=64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    seen = 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
        seen += len(labels)
    return seen

# %% [markdown]
# It returns how many images it trained on. Keep the weights as well, to compare with later.

# %% tags=["nbval-check-output"]
torch.backends.cudnn.allow_tf32 = False  # full precision on GPUs, to compare results
digits, test_digits = mgpu.digits(train=True), mgpu.digits(train=False)
here = mgpu.plan().single_device

def weights_of(model):
    return torch.cat([parameter.detach().flatten().cpu() for parameter in model.parameters()])

model = mgpu.digits_cnn(seed=0).to(here)
print("one device trained on", single_loop(model, digits, here), "images")
alone = weights_of(model)

# %% [markdown]
# ## The same loop on two ranks
#
# Wrap the model in DDP, and run the loop on every rank, not a line of it changed. DDP averages the gradients
# of all ranks during `backward()`. Lesson 09 takes that apart; here it is enough that it happens.

# %% tags=["nbval-check-output"]
ranks = mgpu.start_ranks(2)
ranks.run(lambda: f"rank {rank} of world_size {world_size} is ready")

# %% tags=["nbval-check-output"]
from torch.nn.parallel import DistributedDataParallel as DDP

def unchanged():
    model = mgpu.digits_cnn(seed=0).to(device)
    return single_loop(DDP(model), digits, device), weights_of(model)

results = ranks.run(unchanged)
for number, (seen, weights) in enumerate(results):
    same = torch.allclose(weights, alone, atol=1e-4)
    print(f"rank {number} trained on {seen} images; weights of one device: {same}")

# %%
whole_epoch = results[1][0]
mgpu.reveal("06/images", whole_epoch, "All of them, and rank 0 trained on the same ones.")

# %% [markdown]
# There was no error. The loss falls, and in the end the weights are right. But both ranks worked on the
# same 64 images in each step. The mean of two equal gradients is that gradient. So two devices did the
# work of one, and did it twice.
#
# This is the quiet way to get nothing from a second device. A training log does not show it. A count of
# the images does.

# %% [markdown]
# ## One loop, three strategies
#
# Each rank needs its own shard of each global batch. What else is different? Here is all of it:
#
# | part of the loop | one device | DataParallel | DDP |
# |---|---|---|---|
# | who runs it | one process | one process | every rank |
# | the model | on the device | wrapped (lesson 05) | wrapped, on every rank |
# | a batch of 64 | as it is | as it is, cut by the wrapper | a shard of 32 on each of 2 ranks |
# | what goes into `backward()` | the mean loss | the mean loss | such that the mean over ranks is right (lesson 08) |
# | who logs and saves | the process | the process | rank 0 |
#
# A strategy holds these differences. `mgpu.SingleDevice`, `mgpu.DataParallel` and
# `mgpu.DistributedDataParallel` answer the same five questions, and the loop asks. (`global_sizes` lists how many
# samples each global batch holds, and `strategy.sum` adds up a number over the ranks.)

# %%
def one_loop(strategy):
    model = strategy.wrap(mgpu.digits_cnn(seed=0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = strategy.loader(digits, 64)
    seen, losses = 0, []
    for count, (images, labels) in zip(loader.batch_sampler.global_sizes, loader):
        images, labels = images.to(strategy.device), labels.to(strategy.device)
        optimizer.zero_grad()
        loss_sum = cross_entropy(model(images), labels, reduction="sum")
        strategy.scale_loss(loss_sum, count).backward()
        optimizer.step()
        seen += len(labels)
        losses.append(strategy.sum(loss_sum.detach()).item() / count)
    return seen, losses, weights_of(model)

# %%
runs = {
    "one device": [one_loop(mgpu.SingleDevice(here))],
    "DataParallel": [one_loop(mgpu.DataParallel(2))],
    "DDP": ranks.run(lambda: one_loop(mgpu.DistributedDataParallel())),
}

# %% tags=["nbval-check-output"]
for name, processes in runs.items():
    same = all(torch.allclose(weights, alone, atol=1e-4) for _, _, weights in processes)
    print(f"{name:12} images per process: {[seen for seen, _, _ in processes]},",
          f"steps: {len(processes[0][1])}, weights of one device: {same}")

# %% [markdown]
# Now rank 0 and rank 1 share the images, take as many steps as one device, and arrive at the same weights.
# The last batch holds 29 images only: 15 for rank 0, 14 for rank 1.

# %%
from itertools import accumulate

sizes = mgpu.SingleDevice(here).loader(digits, 64).batch_sampler.global_sizes
curves = {name: (list(accumulate(sizes)), processes[0][1]) for name, processes in runs.items()}
mgpu.plots.training_runs({"One loop, three strategies, one epoch": curves}, reference="one device");

# %% [markdown]
# Three runs, one curve. `mgpu.train`, which you met in lesson 04, is this loop, with the evaluation that
# comes below.

# %% [markdown]
# ## Two ranks on one clock
#
# What does a rank do when? The `Timeline` of lesson 02 uses a clock that all ranks of this machine share. In the
# second run rank 0 (`is_main` is true there, and nowhere else) has something else to do between two steps: it
# saves its model, and the disk needs 15 ms.

# %%
import time
from mgpu_utils.timeline import Timeline

def timed_steps(saving_seconds, steps=6):
    strategy, timeline = mgpu.DistributedDataParallel(), Timeline(device)
    model = strategy.wrap(mgpu.digits_cnn(seed=0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    images, labels = (part.to(device) for part in next(iter(strategy.loader(digits, 64))))
    for step in range(-4, steps):
        if step == 0:
            timeline.clear()  # the first four steps were warm-up
        loss = timeline.note("forward", lambda: cross_entropy(model(images), labels))
        timeline.note("backward", loss.backward)
        timeline.note("optimizer", optimizer.step)
        if step == 2 and strategy.is_main and saving_seconds:
            timeline.note("rank 0 saves", time.sleep, saving_seconds)
    return timeline.spans

# %%
together = ranks.run(timed_steps, 0)
saving = ranks.run(timed_steps, 0.015)
mgpu.plots.steps_of_ranks({"Both ranks do the same": together, "Rank 0 saves after its third step": saving});

# %% [markdown]
# Look at rank 1 below. It has nothing to save. It goes on to its next forward, and then its `backward()`
# is as long as rank 0's pause: the gradients of rank 0 are missing. So whatever one rank does alone, all
# the others pay for.

# %%
fourth = [[span.seconds * 1e3 for span in spans[1] if span.kind == "backward"][3]
          for spans in (together, saving)]
print(f"rank 1's backward in step 4: {fourth[0]:.1f} ms, and {fourth[1]:.1f} ms when rank 0 saves before it")

# %% [markdown]
# Slow, but it works. The ranks meet again, because both called `backward()` equally often. That is the one
# rule of this lesson: **every rank calls the same collectives, in the same order, equally often.** Rank 0
# may do alone what calls no collective.

# %% [markdown]
# ## Log once
#
# Train the network properly, and let each rank print loss and accuracy on its shard of 64 test images:

# %%
# %%ranks
strategy = mgpu.DistributedDataParallel()
history = mgpu.train(mgpu.digits_cnn(seed=0), mgpu.digits(train=True), strategy=strategy, epochs=6)
images, labels = next(iter(strategy.loader(mgpu.digits(train=False), 64)))
with torch.no_grad():
    logits = strategy.unwrap(history.model)(images.to(device)).cpu()
loss = torch.nn.functional.cross_entropy(logits, labels).item()
accuracy = (logits.argmax(dim=1) == labels).float().mean().item()
print(f"loss {loss:.4f}, accuracy {accuracy:.3f}")

# %% [markdown]
# Two lines, two results, and neither is that of the global batch. Each rank only knows its shard. So the
# numbers have to be brought together, and *then* one rank prints. By hand, one `all_reduce` a number:

# %% tags=["nbval-check-output"]
# %%ranks
metrics = {"loss": 0.25, "accuracy": 0.90}
if rank == 1:
    metrics = {"accuracy": 0.90, "loss": 0.25}
for name in metrics:
    total = torch.tensor(metrics[name], device=device)
    dist.all_reduce(total)
    metrics[name] = round(total.item() / world_size, 3)
print(metrics)

# %% [markdown]
# Both ranks brought the loss 0.25 and the accuracy 0.9, and got 0.575 for each. A collective knows no
# names: the first call of rank 0 meets the first call of rank 1. Rank 1 had written its metrics in another
# order, so a loss was added to an accuracy. Nobody complained.
#
# `reduce_metrics` compares the names first, sorts them, and sends all values in one tensor:

# %% tags=["nbval-check-output"]
# %%ranks
from mgpu_utils.metrics import reduce_metrics

mine = {"loss": 0.25, "accuracy": 0.90} if rank == 0 else {"accuracy": 0.90, "loss": 0.25}
means = reduce_metrics(mine, weight=32)
if rank == 0:
    print({name: round(value, 3) for name, value in means.items()})

# %% [markdown]
# All ranks call it, one prints. And when a rank has no accuracy to offer, every rank hears of it, at once.
# This cell ends in an error:

# %% tags=["raises-exception"]
# %%ranks
reduce_metrics({"loss": 0.25, "accuracy": 0.90} if rank == 0 else {"loss": 0.25})

# %% [markdown]
# ## Evaluate on every rank
#
# Lesson 03 got an exact accuracy from shards: each rank counts, and the *counts* are added.

# %% tags=["nbval-check-output"]
# %%ranks
plain = strategy.unwrap(history.model)
counts = torch.zeros(2, device=device)
with torch.no_grad():
    for images, labels in strategy.loader(mgpu.digits(train=False), 64):
        right = (plain(images.to(device)).argmax(dim=1).cpu() == labels).sum()
        counts += torch.tensor([right, len(labels)], device=device)
print("my shard holds", int(counts[1]), "images")
dist.all_reduce(counts)
print("all shards hold", int(counts[1]))

# %% [markdown]
# `mgpu.evaluate` is the same, for any strategy. Beside it the answer of one device, which looks at all
# images itself:

# %% tags=["nbval-check-output"]
def accuracies():
    on_all = mgpu.evaluate(history.model, mgpu.digits(train=False), strategy=strategy)
    alone = mgpu.evaluate(history.model, mgpu.digits(train=False), strategy=mgpu.SingleDevice(device))
    return on_all["count"], on_all["accuracy"] == alone["accuracy"], on_all["accuracy"] >= 0.95

for count, same, good in ranks.run(accuracies):
    print(f"{count} images, the accuracy of one device: {same}, at least 95 %: {good}")

# %% [markdown]
# ### A collective where you do not expect one
#
# Why did both cells use the plain model, and not the one in DDP? Take a model with BatchNorm, and count
# the collectives of one forward in evaluation mode. `Traffic` notes the collectives of this rank, and the
# bytes that it hands to them.

# %% tags=["nbval-check-output"]
# %%ranks
from mgpu_utils.traffic import Traffic

normed = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10), torch.nn.BatchNorm1d(10))
ddp = torch.nn.parallel.DistributedDataParallel(normed.to(device)).eval()
images = mgpu.digits(train=False)[:8][0].to(device)
with torch.no_grad(), Traffic() as wrapped:
    ddp(images)
with torch.no_grad(), Traffic() as unwrapped:
    ddp.module(images)
print("through DDP:   ", wrapped)
print("through module:", unwrapped)

# %% [markdown]
# These are the buffers of rank 0, which DDP sends before each forward (lesson 04), also in `eval()`. If rank 0
# calls the model alone, it calls a collective alone. So evaluate `ddp.module`, or let `mgpu.evaluate` do so. With
# `strategy=mgpu.SingleDevice(device)` it calls no collective, and rank 0 may evaluate alone, while the
# others wait in their next step.

# %% [markdown]
# ## The same number of steps
#
# The rule has a second half: *equally often*. Suppose rank 0 has 3 batches, and rank 1 has 5. In its
# fourth step rank 1 would wait in `backward()` for gradients that never come. So ask before the epoch.
# This cell ends in an error, on both ranks:

# %% tags=["raises-exception"]
# %%ranks
from mgpu_utils.agreement import require_equal_steps

x, y = (part.to(device) for part in mgpu.digits(train=True)[:32])
batches = [(x, y)] * (3 if rank == 0 else 5)
require_equal_steps(batches)

# %% [markdown]
# The cure is a loader that gives every rank the same number of batches. Both the padded shards of lesson
# 03 and the course's loader do. Where that cannot be, DDP has `join()`: a rank that has finished goes on
# answering the collectives of the others, with zeros. (The mean is still taken over all ranks.)

# %% tags=["nbval-check-output"]
# %%ranks
ddp = torch.nn.parallel.DistributedDataParallel(mgpu.digits_cnn(seed=0).to(device))
with ddp.join():
    for x, y in batches:
        torch.nn.functional.cross_entropy(ddp(x), y).backward()
print("finished", len(batches), "steps")

# %% [markdown]
# ## From cells to a script
#
# A long training does not run in a notebook. It is a script, started by `torchrun`, which starts the ranks
# and tells each of them its number through environment variables. Write one, into a temporary folder:

# %%
import tempfile
from pathlib import Path

folder = tempfile.TemporaryDirectory()
script = Path(folder.name) / "train.py"

# %%
# %%writefile {script}
import os
import torch
import torch.distributed as dist
import mgpu_utils as mgpu
from mgpu_utils.torchrun import leave

plan = mgpu.plan(int(os.environ["WORLD_SIZE"]))
device = plan.rank_devices[int(os.environ["LOCAL_RANK"])]
if device.type == "cuda":
    torch.cuda.set_device(device)
dist.init_process_group(plan.backend)

strategy = mgpu.DistributedDataParallel(device)
digits, test_digits = mgpu.digits(train=True), mgpu.digits(train=False)
history = mgpu.train(mgpu.digits_cnn(seed=0), digits, strategy=strategy, epochs=2)
result = mgpu.evaluate(history.model, test_digits, strategy=strategy)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} took {len(history.steps)} steps")
if strategy.is_main:
    print(f"evaluated on {result['count']} images: accuracy {result['accuracy']:.3f}")
leave()

# %% [markdown]
# The middle is what you know. The rest does what `start_ranks` did for you:
#
# | | in this notebook | in a script |
# |---|---|---|
# | who starts the ranks | `mgpu.start_ranks(2)` | `torchrun --nproc-per-node=2 train.py` |
# | which device is mine | `device` is there | from `LOCAL_RANK` |
# | who else is there | the group is there | `init_process_group`, with `RANK` and `WORLD_SIZE` |
# | where does `print` go | under the cell | to the log |
# | how it ends | `ranks.shutdown()` | `leave()`: wait for all, close the group, exit |
#
# A `Launcher` does from here what `torchrun` does in a terminal, and brings back the log:

# %%
from mgpu_utils.torchrun import Launcher

launcher = Launcher()
result = launcher.run(script, nproc_per_node=2, timeout=120)
print(f"return code {result.returncode} after {result.seconds:.1f} s")
print(result.stdout, end="")

# %% [markdown]
# Each line of the log begins with its rank. Three lines: both ranks tell who they are, and one of them
# tells the result. Check that:

# %% tags=["nbval-check-output"]
lines = result.stdout.splitlines()
print("succeeded:", result.ok)
print(*sorted(line for line in lines if "took" in line), sep="\n")
print("lines with an accuracy:", sum("accuracy" in line for line in lines))

# %% [markdown]
# And when it goes wrong? Let rank 1 be told to train for 0 epochs, and run the script again. `reason` is
# the exception of the rank that failed first.

# %% tags=["nbval-check-output"]
broken = Path(folder.name) / "broken.py"
broken.write_text(script.read_text().replace("epochs=2", "epochs=2 - 2 * dist.get_rank()"))
failed = launcher.run(broken, nproc_per_node=2, timeout=120)
print(failed.ok, "|", failed.reason)

# %% [markdown]
# Rank 0 did nothing wrong. It would have waited for rank 1 in its first collective, so `torchrun` ended it
# as well. The whole error, with the line of the script, stands in the log:

# %%
print(*[line for line in failed.stderr.splitlines() if line.startswith("[rank 1]")], sep="\n")
launcher.close()
folder.cleanup()

# %% [markdown]
# ## Verdict on the claim

# %% tags=["verdict"]
shares = [seen for seen, _, _ in runs["DDP"]]
print(f"images per rank and epoch: {results[0][0]} and {results[1][0]} with the unchanged loop, "
      f"{shares[0]} and {shares[1]} with shards")

# %% [markdown]
# **Half true.** The body of the loop stays the same; but every rank runs it, and needs its own shard.
#
# With one process, moving the batch is enough. With one process a device, the unchanged loop trains on the
# same images on every rank, and says nothing about it. What changes is around the loop: the wrapper, the
# shard, what goes into `backward()`, and who logs, saves and evaluates.

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: from one device to DDP (12 minutes, difficulty 2 of 3)
#
# Copy `single_loop` from above, and change or add at most **six lines**, so that the ranks share each
# batch. It is called on every rank as `ddp_loop(model, dataset, device)` with a dataset of 640 images, and
# with a model that has **other weights on every rank**. Afterwards every rank's `model` must hold the
# weights that `single_loop` gives rank 0's model on one device, within 0.0001. Use PyTorch's own classes:
# `DDP`, and the `DistributedSampler` of lesson 03.

# %%
def ddp_loop(model, dataset, device):
    ### BEGIN SOLUTION
    sampler = torch.utils.data.DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=64 // dist.get_world_size(), sampler=sampler)
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    seen = 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
        seen += len(labels)
    return seen
    ### END SOLUTION

mgpu.check("06/ddp-loop", ddp_loop, single_loop, ranks=ranks)

# %% [markdown]
# ### Exercise 2: log once (8 minutes, difficulty 1 of 3)
#
# Every rank calls `log(step, loss)` after each step, with the loss of its own shard. All shards are
# equally large. Print **one** line for all ranks together, with the step and the mean loss of the global
# batch, like `step 3 loss 0.1234`.

# %%
def log(step, loss):
    ### BEGIN SOLUTION
    mean = torch.tensor(loss, device=device)
    dist.all_reduce(mean)
    if rank == 0:
        print(f"step {step} loss {mean.item() / world_size:.4f}")
    ### END SOLUTION

mgpu.check("06/log-once", log, ranks=ranks)

# %% [markdown]
# ### Exercise 3: alone, or all together? (5 minutes, difficulty 1 of 3)
#
# Rank 0 is about to make one of these calls under `if rank == 0:`, while the other ranks go on training.
# `ddp` is a model with BatchNorm, wrapped in DDP, and `strategy` is a `mgpu.DistributedDataParallel`.
#
# 1. `torch.save(ddp.module.state_dict(), "model.pt")`
# 2. `ddp(images)`, in evaluation mode, without gradients
# 3. `ddp.module(images)`, in evaluation mode, without gradients
# 4. `mgpu.evaluate(ddp, test_digits, strategy=strategy)`
# 5. `reduce_metrics({"loss": loss})`
# 6. `print(loss)`
# 7. `dist.barrier()`
#
# Write the numbers of those that are fine.

# %%
fine = {
    ### BEGIN SOLUTION
    1, 3, 6,
    ### END SOLUTION
}

mgpu.check("06/alone", fine)

# %% [markdown]
# ## Break it: rank 0 evaluates, the others do not
#
# Everybody writes this once. Training is finished, only rank 0 is to print the accuracy, so the evaluation
# goes under `if`. But `mgpu.evaluate` with this strategy ends in an `all_reduce`.

# %%
mgpu.predict("06/deadlock", ["both finish", "rank 0 waits", "rank 1 waits"], answer=...,
             question="Only rank 0 evaluates with a collective inside. What happens?")

# %% tags=["raises-exception"]
ranks.timeout = 3.0

def rank_0_evaluates():
    strategy = mgpu.DistributedDataParallel()
    history = mgpu.train(mgpu.digits_cnn(seed=0), digits, strategy=strategy, max_steps=3)
    if strategy.is_main:
        print(mgpu.evaluate(history.model, test_digits, strategy=strategy))

ranks.run(rank_0_evaluates)

# %%
mgpu.reveal("06/deadlock", "rank 0 waits")

# %% [markdown]
# Rank 1 has long finished. Rank 0 stands in the `all_reduce` of an evaluation that no other rank makes. In
# a job under `torchrun` it would stand there until the timeout of the process group: half an hour with
# `gloo`, ten minutes with `nccl`, unless you choose another.
#
# ### In the middle of training
#
# It is worse when the others are not finished. Then the `all_reduce` of rank 0's evaluation, 3 numbers,
# meets the `all_reduce` of rank 1's next gradients, 10,026 numbers. GPUs then wait for each other. CPU
# ranks may die without a Python error. And sometimes one of the two calls returns, with a wrong result.
#
# PyTorch has a switch for such cases. With `TORCH_DISTRIBUTED_DEBUG=DETAIL`, set before the ranks start,
# it compares the calls of all ranks before it makes them. Start the group afresh, with the switch, and let
# the two calls meet:

# %%
import os

os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
ranks.timeout = 60.0
ranks.restart()

# %% tags=["raises-exception"]
def two_calls_meet():
    evaluation, gradients = torch.zeros(3, device=device), torch.zeros(10_026, device=device)
    dist.all_reduce(evaluation if rank == 0 else gradients)

ranks.run(two_calls_meet)

# %% [markdown]
# Both ranks raise, and both say what each of them was calling: look for `TensorShape`. And the group is
# still there, for nothing was sent:

# %% tags=["nbval-check-output"]
ranks.run(lambda: f"rank {rank} of {world_size} still answers")

# %% [markdown]
# The comparison costs time in every collective, so switch it off when you are done. (It is for collectives
# of your own: in the tested version of PyTorch, wrapping a model in DDP on CPU ranks under `DETAIL` ends
# the rank.)
#
# The cure has two forms. Either every rank evaluates, and rank 0 prints. Or rank 0 evaluates alone, with
# the plain model and no collective: `strategy=mgpu.SingleDevice(device)`.

# %%
del os.environ["TORCH_DISTRIBUTED_DEBUG"]
ranks.shutdown()

# %% [markdown]
# ## On real GPUs
#
# - The clock shows less: `backward()` hands work to the GPU and to `nccl`, and returns before it is done.
#   `Timeline` waits for the device, so the picture above stays right.
# - The deadlock looks worse. A GPU that waits in a collective shows full load in `nvidia-smi`.
# - `torchrun` starts one process for each GPU: `--nproc-per-node=8` on a machine with eight of them.

# %% [markdown]
# ## Recap
#
# 1. You ran an unchanged loop on two ranks: each trained on all images, and the second device brought
#    nothing.
# 2. You wrote one loop for three strategies: same curve, same weights. Around the loop, five things
#    change.
# 3. You watched two ranks on one clock: when rank 0 does something alone, the others wait in `backward()`.
# 4. You found what rank 0 may do alone: all that calls no collective. Metrics and counts are brought
#    together by all ranks, and one of them prints. A forward through DDP may hide a broadcast.
# 5. You moved to a script under `torchrun`, and read in its log which rank said what, and which one
#    failed.
#
# **One step further.** Where do the seconds of a step go on this machine? [Break down a
# step](../benchmarks/03_break_down_a_step.ipynb) measures its parts, for each strategy. Next: [07 Choose the
# optimizer](07_choose_the_optimizer.ipynb).
