# %% [markdown]
# # Wrap a model in DataParallel
#
# In lesson 04 every rank had a model, and the ranks had to agree. This lesson does without ranks: one process
# drives all devices, and keeps one model.
#
# **You'll do**
#
# 1. split a batch over two replicas by hand, and get the gradient of one device
# 2. let `nn.DataParallel` do the same, and find out whether it really does
# 3. count what each step costs
# 4. meet the cases that surprise people: small batches, lost attributes, BatchNorm, losses, lists
#
# **You'll learn** the four moves *scatter, replicate, apply, gather*, where the gradients land, and when
# one line is not enough.
#
# **You need** about 50 minutes, two CPU cores, and lessons 00 to 04. Cells that differ on GPUs: none.

# %% [markdown]
# ## The claim
#
# > Wrap the model: `model = nn.DataParallel(model)`. One line, and the rest is automatic.
#
# [`nn.DataParallel`](../docs/glossary.md#dataparallel) is PyTorch's class for one process with several GPUs. Do you
# believe the claim? Commit yourself before you go on.

# %%
import mgpu_utils as mgpu

mgpu.predict("05/speed", float, answer=...,
             question="Two devices share each batch. How many times faster is a step?")

# %% [markdown]
# ## The devices and the batch
#
# Where there are two GPUs, the two replicas below live on them. Anywhere else they share the CPU, and two
# threads play the part of two devices.

# %%
import torch
from torch import nn
from torch.nn.functional import cross_entropy

torch.backends.cudnn.allow_tf32 = False  # full precision on GPUs, to compare results
devices = mgpu.plan(2).rank_devices
on_gpus = devices[0].type == "cuda"
print("replicas on:", *devices)

# %% [markdown]
# The digits, the network and the batch of 64, as before:

# %% tags=["nbval-check-output"]
images, labels = mgpu.digits(train=True)[:64]
labels = labels.to(devices[0])
model = mgpu.digits_cnn(seed=0).to(devices[0])
parameters = sum(p.numel() for p in model.parameters())
print(tuple(images.shape), tuple(labels.shape), parameters, "parameters")

# %% [markdown]
# ## By hand, move 1: scatter
#
# [Scatter](../docs/glossary.md#scatter): cut the batch along its first dimension, and send each piece to
# its device.

# %% tags=["nbval-check-output"]
pieces = [piece.to(device) for piece, device in zip(images.chunk(2), devices)]
[tuple(piece.shape) for piece in pieces]

# %% [markdown]
# Which sample went where? With 64 samples the picture gets too small, so here is a batch of 10:

# %%
few = images[:10]
names = [f"replica {i} ({device})" for i, device in enumerate(devices)]
mgpu.plots.scattered_samples(few, [len(piece) for piece in few.chunk(2)], names);

# %% [markdown]
# The first half goes to replica 0 and the second half to replica 1. Nothing is shuffled, nothing is dropped,
# and no sample is used twice.
#
# Batches do not always divide so well. A piece has `batch / devices` samples, rounded **up**, and the last
# devices get what is left. Look before you train:

# %% tags=["nbval-check-output"]
def preview(batch, devices):
    sizes = [len(piece) for piece in torch.arange(batch).chunk(devices)]
    sizes += [0] * (devices - len(sizes))
    idle, single = sizes.count(0), sizes.count(1)
    warning = f"  WARNING: {idle} with no sample, {single} with one" if idle or single else ""
    print(f"{batch:2} samples on {devices} devices: {sizes}{warning}")

for batch, count in [(64, 2), (9, 2), (9, 4), (5, 4), (7, 4), (1, 2)]:
    preview(batch, count)

# %% [markdown]
# A device that gets nothing is paid for and does no work. A device that gets a single sample is worse off than
# it looks: where BatchNorm has one value a channel to normalise, training stops with an error (*Expected more
# than 1 value per channel*). The last batch of an epoch is often such a batch: `drop_last=True` leaves it out.
# `mgpu.SplitPreview(batch, devices)` is this preview as an object, and names a batch that fits.

# %% [markdown]
# ## Move 2: replicate
#
# Each device needs the whole model. So copy it:

# %% tags=["nbval-check-output"]
import copy

replicas = [copy.deepcopy(model).to(device) for device in devices]
master, first, second = (net[0].weight.data_ptr() for net in [model, *replicas])
print("three weights in three places:", len({master, first, second}) == 3)

# %% [markdown]
# There is your `model`, called the **[master copy](../docs/glossary.md#master-copy)** from now on, and there
# are two replicas of it.
#
# ## Move 3: apply in parallel
#
# Each replica works on its own piece, in its own thread of this one Python process. A
# `ThreadPoolExecutor` runs two such threads. On a CPU each of them may use one core.

# %% tags=["nbval-check-output"]
from concurrent.futures import ThreadPoolExecutor

def apply(replica, piece):
    return replica(piece)

pool = ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,))
outputs = list(pool.map(apply, replicas, pieces))
[tuple(output.shape) for output in outputs]

# %% [markdown]
# ## Move 4: gather
#
# [Gather](../docs/glossary.md#gather): bring all outputs to the first device and join them. They are the outputs
# of the whole batch, in the order of the batch:

# %% tags=["nbval-check-output"]
logits = torch.cat([output.to(devices[0]) for output in outputs])
whole = model(images.to(devices[0]))
print(tuple(logits.shape))
print("same as one device:", torch.allclose(logits, whole, atol=1e-4))

# %% [markdown]
# ## Backward: where do the gradients land?
#
# One loss over all 64 outputs, on the first device. Then `backward()`. It uses up the graph of a forward pass,
# so the pass stands here once more: you can run this cell as often as you like.

# %% tags=["nbval-check-output"]
for net in [model, *replicas]:
    net.zero_grad()
outputs = [output.to(devices[0]) for output in pool.map(apply, replicas, pieces)]
cross_entropy(torch.cat(outputs), labels).backward()
for name, net in zip(["master", "replica 0", "replica 1"], [model, *replicas]):
    print(f"{name:10} has a gradient: {net[0].weight.grad is not None}")

# %% [markdown]
# Each replica has a gradient, from its own 32 samples. The master copy has none, and it is the one that
# the optimizer will update. So **add** the replicas' gradients into the master copy:

# %%
for master, *copies in zip(model.parameters(), *(net.parameters() for net in replicas)):
    master.grad = sum(one.grad.to(devices[0]) for one in copies)

# %% [markdown]
# Add, or average? The loss was already the mean over all 64 samples, so each replica's gradient is its
# share of the whole. Shares are added. Compare with one device that sees the whole batch:

# %% tags=["nbval-check-output"]
def gradient_of(net):
    return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])

def same(one, two):
    return torch.allclose(one, two, atol=1e-5)

alone = mgpu.digits_cnn(seed=0).to(devices[0])
cross_entropy(alone(images.to(devices[0])), labels).backward()
print("same gradient as one device:", same(gradient_of(model), gradient_of(alone)))

# %% [markdown]
# That is the whole algorithm: scatter, replicate, apply, gather, and a sum on the way back. After the
# optimizer's step the replicas are out of date. They are thrown away, and the next step copies the model
# **again**.

# %% [markdown]
# ## The real class, and a trap
#
# `nn.DataParallel` does these moves for you. To see who really works, let a small module write down each
# call: in which thread, and how many samples.

# %%
import threading

class Watched(nn.Module):
    def forward(self, x):
        calls.append((threading.current_thread() is threading.main_thread(), len(x)))
        return x

calls = []
wrapped = nn.DataParallel(Watched())
wrapped(images)
print("device_ids:", wrapped.device_ids)
print("calls (in main thread?, samples):", calls)

# %% [markdown]
# With fewer than two GPUs you see **one** call with all 64 samples, in the main thread, and where there
# is no GPU at all, `device_ids` is `[]`. There was no error and no warning: `nn.DataParallel` silently
# called the plain model. A "speed-up" measured like that compares a thing with itself.
#
# So where there are not two GPUs this course uses `mgpu.ThreadedDataParallel`. It is a
# **[stand-in](../docs/glossary.md#threaded-stand-in)**: it does the same moves as the real class, with two CPU
# threads for two GPUs. With two GPUs you get the real class.

# %%
def wrap(net):
    if on_gpus:
        return nn.DataParallel(net.to(devices[0]), device_ids=list(devices))
    return mgpu.ThreadedDataParallel(net, num_devices=2)

print("in use here:", type(wrap(Watched())).__name__)

# %% [markdown]
# Does *this* one share the work?

# %% tags=["nbval-check-output"]
calls = []
wrap(Watched())(images)
print(len(calls), "replicas worked, on", [samples for _, samples in calls], "samples")
print("any in the main thread:", any(main for main, _ in calls))

# %% [markdown]
# Two calls, 32 samples each, each in a thread of its own. Now with the network. Two lines are enough, and
# the gradient lands on the master copy by itself:

# %% tags=["nbval-check-output"]
model = mgpu.digits_cnn(seed=0)
parallel = wrap(model)
cross_entropy(parallel(images), labels).backward()
print("same gradient as one device:", same(gradient_of(model), gradient_of(alone)))

# %% [markdown]
# How does it get there? The real replicas do not own parameters. What they hold are copies made by an
# operation that autograd knows: forward it copies, and backward it adds the copies' gradients into the
# master copy. You did both by hand.

# %% [markdown]
# ## Measure it
#
# One training step on one device, with your moves by hand, and with the wrapper. On a CPU the comparison
# is fair only if both sides may use the same number of threads: the two replicas have one each, so one
# device gets two.

# %%
from mgpu_utils.timing import measure, median_interval

torch.set_num_threads(2)

def step(net, x, y):
    net.zero_grad()
    cross_entropy(net(x), y).backward()

# %%
def step_by_hand(net, x, y):
    replicas = [copy.deepcopy(net).to(device) for device in devices]
    pieces = [piece.to(device) for piece, device in zip(x.chunk(2), devices)]
    outputs = [output.to(devices[0]) for output in pool.map(apply, replicas, pieces)]
    cross_entropy(torch.cat(outputs), y).backward()
    for master, *copies in zip(net.parameters(), *(r.parameters() for r in replicas)):
        master.grad = sum(one.grad.to(devices[0]) for one in copies)

# %%
x = images.to(devices[0])
wrapper_name = type(parallel).__name__
jobs = {
    "one device": lambda: step(alone, x, labels),
    "by hand": lambda: step_by_hand(alone, x, labels),
    wrapper_name: lambda: step(parallel, x, labels),
}

# %% [markdown]
# The three take turns, 15 rounds long. So when the machine is busy for a moment, it is busy for all of
# them. Each turn begins with a step that does not count.

# %%
seconds = {name: [] for name in jobs}
for _ in range(15):
    for name, job in jobs.items():
        seconds[name] += measure(job, warmup=1, repeats=1, device=devices[0]).seconds

# %%
medians = {name: median_interval(values) for name, values in seconds.items()}
for name, (middle, low, high) in medians.items():
    print(f"{name:20} {middle * 1e3:6.2f} ms a step, "
          f"95 % interval {low * 1e3:.2f} to {high * 1e3:.2f} ms")

# %%
speedup = medians["one device"].median / medians[wrapper_name].median
mgpu.reveal("05/speed", round(speedup, 2),
            f"Batch of 64, {wrapper_name} on {devices[0].type}, 15 rounds.")

# %% [markdown]
# Above 1 it is faster than one device, below 1 it is slower. Twice as fast would be perfect. Where the
# intervals of two rows overlap, their order may be chance.
#
# With a network and a batch as small as these, starting threads and copying can take longer than the work
# that is shared. With 16 times as many samples there is more to share, and the same to copy:

# %%
big, targets = (part.to(devices[0]) for part in mgpu.digits(train=True)[:1024])
for name, net in [("one device", alone), (wrapper_name, parallel)]:
    timing = measure(lambda: step(net, big, targets), warmup=2, repeats=5, device=devices[0])
    print(f"{name:20} {timing}")

# %% [markdown]
# So the speed-up is not a property of `nn.DataParallel`. It depends on how much work a step holds, and on
# what a step costs besides the work.

# %% [markdown]
# ## What one step costs
#
# The wrapper has a method for each move. So take a step apart, and time each move alone. `lap` calls a
# function and notes its seconds; it waits for every device before it looks at the clock.

# %%
from mgpu_utils.laps import Laps

laps = Laps(devices)
lap = laps.lap

def step_in_parts(net, x, y):
    net.zero_grad()
    inputs, kwargs = lap("scatter", net.scatter, (x,), {}, net.device_ids)
    copies = lap("replicate", net.replicate, net.module, net.device_ids)
    outputs = lap("forward", net.parallel_apply, copies, inputs, kwargs)
    logits = lap("gather", net.gather, outputs, net.output_device)
    loss = lap("loss", cross_entropy, logits, y)
    lap("backward", loss.backward)

# %% [markdown]
# One device has three of these parts only:

# %%
def plain_step_in_parts(net, x, y):
    net.zero_grad()
    logits = lap("forward", net, x)
    loss = lap("loss", cross_entropy, logits, y)
    lap("backward", loss.backward)

# %%
costs = {
    "one device": laps.medians(plain_step_in_parts, alone, x, labels),
    wrapper_name: laps.medians(step_in_parts, parallel, x, labels),
}
title = f"One step, batch of 64, {devices[0].type}, medians of 15 steps"
mgpu.plots.step_cost(costs, title);

# %% [markdown]
# Compare the two bars part by part. *Forward* is the part that the replicas share. *Scatter*, *replicate*
# and *gather* are new: one device has no such parts. *Loss* is computed once, on the first device, while
# the others wait. *Backward* contains the sum into the master copy.

# %% [markdown]
# ### Cost 1: the model is copied again at every step
#
# Count the bytes that move in one step. Replica 0 sits on the master's device, and shares its memory;
# only the others need a copy.

# %% tags=["nbval-check-output"]
copies = parallel.replicate(model, parallel.device_ids)
[replica[0].weight.data_ptr() == model[0].weight.data_ptr() for replica in copies]

# %% tags=["nbval-check-output"]
size = {"model, to replica 1": sum(p.nbytes for p in model.parameters()),
        "images, to replica 1": images[32:].nbytes,
        "outputs, to replica 0": parallel(images)[32:].nbytes}
for what, count in size.items():
    print(f"{what:22} {count:8,} bytes")

# %% [markdown]
# On the way forward the copy of the model is most of what moves. On the way back, as many bytes of
# gradients return. With N devices there are N - 1 copies, at every step. Under DDP each rank keeps its own copy
# for the whole training (lesson 04), and only gradients travel.

# %% [markdown]
# ### Cost 2: all outputs meet on the first device
#
# For 10 digit classes the outputs are tiny. A language model gives one number for each word of its
# vocabulary, at each position of each text. With 8 texts, 1,024 positions and 50,257 words these are 412 million
# float32 numbers, 1.5 GiB, all on device 0. Their gradient needs as much again. So the first GPU can run out of
# memory while the others still have room.

# %% [markdown]
# ### Cost 3: one Python process
#
# The replicas are threads of one process, and only one thread can run Python code at a time (the lock is
# called GIL). PyTorch lets go of the lock inside its big operations. But the Python around them has to
# queue. Here is work that is Python alone: done once, by two threads at the same time, and by two ranks
# (processes) at the same time.

# %% tags=["nbval-check-output"]
ranks = mgpu.start_ranks(2)
ranks.run(lambda: f"rank {rank} of world_size {world_size} is ready")

# %%
def python_work(_):
    return sum(i * i for i in range(700_000))

print("once:       ", measure(lambda: python_work(0), repeats=5))
print("two threads:", measure(lambda: list(pool.map(python_work, [0, 0])), repeats=5))
print("two ranks:  ", measure(lambda: ranks.run(python_work, 0), repeats=5))
ranks.shutdown()

# %% [markdown]
# On a machine with two free cores, expect the two threads to need about twice as long as one, because they take
# turns, and the two ranks about as long as one. On GPUs, the Python code that launches the kernels queues in the
# same way. PyTorch's documentation
# [recommends](https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-nn-ddp-instead)
# `DistributedDataParallel` in place of `DataParallel`, even on a single machine, and names this lock as a
# reason.

# %% [markdown]
# ## Cases that surprise people
#
# ### A batch that does not divide, or is too small
#
# Does the wrapper do what `preview` said? `calls` shows how many samples each replica got:

# %% tags=["nbval-check-output"]
for batch in (9, 1):
    calls = []
    wrap(Watched())(images[:batch])
    print(batch, "samples ->", sorted((samples for _, samples in calls), reverse=True))

# %% [markdown]
# With 9 samples one replica works longer than the other, and both wait for the slower. With 1 sample
# there is one replica, and the other device does nothing. The wrapper itself warns of neither;
# the strategy `mgpu.DataParallel` does.

# %% [markdown]
# ### BatchNorm sees replica 0 only
#
# Buffers that `forward` changes in place, such as the running mean of BatchNorm, survive on replica 0,
# because it shares the master's memory. Those of all other replicas are thrown away.
#
# Take a batch whose first half is 0 and whose second half is 10. Its mean is 5. BatchNorm moves its
# running mean by a tenth of the way (`momentum=0.1`).

# %% tags=["nbval-check-output"]
batch = torch.cat([torch.zeros(32, 1), 10 * torch.ones(32, 1)])
print("expected from the whole batch:    ", round(0.1 * batch.mean().item(), 4))
print("expected from replica 0's samples:", round(0.1 * batch[:32].mean().item(), 4))

# %% tags=["nbval-check-output"]
one, many = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
one(batch)
wrap(many)(batch)
print("one device:  ", round(one.running_mean.item(), 4))
print("two replicas:", round(many.running_mean.item(), 4))

# %% [markdown]
# The second half was never seen by the statistics that you will use in evaluation. With shuffled data the
# halves are alike, so the harm is small. It is not zero: each replica also normalises with the mean of
# its own piece.

# %% [markdown]
# ### A model that returns its loss
#
# Some models compute the loss inside `forward`, and return one number. Two replicas return two.

# %%
import warnings

class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mgpu.digits_cnn(seed=0)

    def forward(self, x, y):
        return cross_entropy(self.net(x), y)

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    losses = wrap(WithLoss())(images[:9], labels[:9])
print(caught[0].message)

# %% tags=["nbval-check-output"]
true_loss = cross_entropy(alone(x[:9]), labels[:9])
weighted = (losses * torch.tensor([5, 4], device=devices[0])).sum() / 9
print("shape:", tuple(losses.shape))
print("mean of the two is the loss:    ", same(losses.mean(), true_loss))
print("weighted by 5 and 4 samples is: ", same(weighted, true_loss))

# %% [markdown]
# The scalar became a vector, with a warning, and `losses.backward()` would stop with an error. The usual
# cure, `losses.mean()`, is right for equal pieces only. For pieces of 5 and 4 it counts each sample of
# the smaller piece for more. Weigh by the number of samples. `mgpu.DataParallel`, the strategy for this wrapper,
# does it for you.

# %% [markdown]
# ### Dictionaries of tensors are cut, lists of names are not
#
# Tensors inside tuples, lists and dictionaries are scattered along their first dimension. Anything else
# is handed to **every** replica whole. A list of 64 file names, for example:

# %% tags=["nbval-check-output"]
class Lengths(nn.Module):
    def forward(self, batch):
        calls.append((len(batch["image"]), len(batch["file"])))
        return {"doubled": batch["image"] * 2}

calls = []
output = wrap(Lengths())({"image": images, "file": [f"{i}.png" for i in range(64)]})
print("(images, file names) for each replica:", calls)
print("gathered:", {name: tuple(value.shape) for name, value in output.items()})

# %% [markdown]
# Each replica got 32 images and 64 names. On replica 1, name 0 belongs to an image that replica 0 has.
# Nothing complains. Send numbers instead, as a tensor: they are cut in the same way as the images.

# %% [markdown]
# ## Verdict on the claim

# %% tags=["verdict"]
copied = sum(p.nbytes for p in model.parameters())
print(f"{wrapper_name} on {devices[0].type}: {speedup:.2f} x the speed of one device, "
      f"{copied:,} bytes of model copied at each step")

# %% [markdown]
# **Half true.** It is one line, and the gradient is that of one device; but the rest is not automatic.
#
# The line above says what it brings and costs on this machine. Lesson 06 trains with it, beside one device.
# The outputs meet on one device, Python runs on one core, and five things behave differently from the plain
# model: small batches, BatchNorm, scalar losses, lists of anything but tensors, and attributes. The last of
# these you break yourself, further down.

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: scatter and gather (8 minutes, difficulty 1 of 3)
#
# Write both moves without devices. `scatter` gives at most `count` pieces of `batch`, cut along the first
# dimension, as `nn.DataParallel` cuts them, for any numbers: 10 samples on 4 devices, 36 on 7, 3 on 4.
# `gather` gives the batch back, and lets gradients through.

# %%
def scatter(batch, count):
    ### BEGIN SOLUTION
    return list(batch.chunk(count))
    ### END SOLUTION

def gather(pieces):
    ### BEGIN SOLUTION
    return torch.cat(pieces)
    ### END SOLUTION

mgpu.check("05/scatter", scatter, gather)

# %% [markdown]
# ### Exercise 2: ten samples, four devices (4 minutes, difficulty 1 of 3)
#
# A batch of shape `(10, 1, 8, 8)` goes to 4 replicas. How many samples does each one see? Without
# `preview`, write four numbers in place of the dots, for replica 0 to 3. The check then runs four replicas,
# on CPU threads, and counts.

# %%
seen = [
    ### BEGIN SOLUTION
    3, 3, 3, 1,
    ### END SOLUTION
]

mgpu.check("05/shapes", seen)

# %% tags=["solution"]
mgpu.plots.scattered_samples(few, seen);

# %% [markdown]
# ### Exercise 3: the gradient of one device, from two replicas (12 minutes, difficulty 2 of 3)
#
# Write one step without `nn.DataParallel` and without the stand-in. Afterwards the `.grad` of each
# parameter of `model` must equal the gradient of the mean loss on one device, within 0.00001. The
# replicas may run one after the other. The check uses 64 samples, then 9, which do not divide, and models
# with different weights.

# %%
def backward_in_two(model, images, labels):
    ### BEGIN SOLUTION
    replicas = [copy.deepcopy(model) for _ in range(2)]
    outputs = [replica(piece) for replica, piece in zip(replicas, images.chunk(2))]
    cross_entropy(torch.cat(outputs), labels).backward()
    for master, *copies in zip(model.parameters(), *(r.parameters() for r in replicas)):
        master.grad = sum(one.grad for one in copies)
    ### END SOLUTION

mgpu.check("05/gradients", backward_in_two)

# %% [markdown]
# ## Break it: a counter that stays 0
#
# A model that counts how often it was called. It is called 10 times, with two replicas each time.

# %%
mgpu.predict("05/counter", int, answer=...,
             question="What does the model's counter say after 10 calls?")

# %% tags=["nbval-check-output"]
class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 0

    def forward(self, x):
        self.count += 1
        return x

counting = wrap(Counting())
for _ in range(10):
    counting(images)
print("count:", counting.module.count)

# %%
mgpu.reveal("05/counter", counting.module.count)

# %% [markdown]
# The line `self.count += 1` ran 20 times. Each time `self` was a **replica**: it got a new value, and was
# thrown away after the call. The master copy was never touched. The same happens to a cache, to a running
# average, to anything that `forward` assigns to `self`. There is no error, only a number that does not
# move.
#
# Now the same model in plain `nn.DataParallel`:

# %%
plain = nn.DataParallel(Counting())
for _ in range(10):
    plain(images)
print("device_ids:", plain.device_ids, " count:", plain.module.count)

# %% [markdown]
# On a machine with fewer than two GPUs this says 10, because there are no replicas. So the mistake passes
# every test on a laptop, and shows on the GPU machine. The stand-in shows it here.
#
# The cure: make it a buffer and change it **in place**. The buffers of replica 0 are the master's own
# memory.

# %% tags=["nbval-check-output"]
class CountingBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.count.add_(1)
        return x

cured = wrap(CountingBuffer())
for _ in range(10):
    cured(images)
print("count:", cured.module.count.item())
print("and the network still works:", tuple(parallel(images).shape))

# %% [markdown]
# It says 10, not 20: replica 1 counted in its own copy.

# %% [markdown]
# ## On real GPUs
#
# - `wrap` gives the real `nn.DataParallel`, and `replicate` really sends the model through the link
#   between the cards.
# - Larger models and batches shift the picture: forward and backward grow, and the copies matter less.
# - The memory of device 0 fills first, because the outputs and the loss live there. Compare the cards in
#   `nvidia-smi`.

# %% [markdown]
# ## Recap
#
# 1. You split a batch by hand: scatter, replicate, apply, gather; the replicas' gradients are added into
#    the master copy.
# 2. You let `nn.DataParallel` do it, and looked: without GPUs it does nothing, silently. The stand-in
#    says its name.
# 3. You counted the cost of a step: the whole model copied again, all outputs on device 0, one Python
#    process.
# 4. You met the surprises: uneven batches, buffers of replica 0 only, losses that become vectors, lists
#    that are not cut, and attributes that are lost.
#
# **One step further.** Is the other strategy faster on this machine, and how far are both from what the
# machine can do? [Compare strategies](../benchmarks/01_compare_strategies.ipynb) measures it, with a
# larger network too. Next: [06 Run the training loop](06_run_the_training_loop.ipynb).
