# %% [markdown]
# # Aggregate the gradients of all ranks
#
# In lesson 08 all that DDP sent was sent in `backward()`: one number for each parameter. Here you open that line,
# and build it yourself.
#
# **You'll do**
#
# 1. count what `backward()` sends by itself, and average the gradients by hand
# 2. put them into one bucket, start the sums during `backward()`, and time each way beside DDP
# 3. see on a timeline what runs when
# 4. accumulate micro-batches with `no_sync`, and count the sums
# 5. find a parameter that the loss does not use
# 6. send fewer bytes with communication hooks, and measure the error
#
# **You'll learn** who collects the gradients, when, and how to see that it was done right.
#
# **You need** about 75 minutes, two CPU cores, and lessons 00 to 08. Cells that differ on GPUs: none.

# %% [markdown]
# ## The claim
#
# > `backward()` collects the gradients of all GPUs.
#
# Do you believe it? And how does it collect them? Commit yourself before you go on.

# %%
import mgpu_utils as mgpu

mgpu.predict("09/sums", int, answer=...,
             question="The digits network has 10 parameter tensors. How many all_reduces "
                      "does DDP run in one backward()?")

# %% [markdown]
# ## backward() alone
#
# Two ranks, each with its shard of 32 digits, and the same model on both.

# %% tags=["nbval-check-output"]
ranks = mgpu.start_ranks(2)
ranks.run(lambda: f"rank {rank} of world_size {world_size} is ready")

# %%
# %%ranks
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP
from mgpu_utils.gradient_agreement import compare_gradients, gradient_of
from mgpu_utils.traffic import Traffic

# %%
# %%ranks
torch.backends.cudnn.allow_tf32 = False  # full precision on GPUs, to compare results
images, labels = (tensor.to(device) for tensor in mgpu.digits(train=True)[:64])
x, y = images.chunk(world_size)[rank], labels.chunk(world_size)[rank]

# %% tags=["nbval-check-output"]
# %%ranks
model = mgpu.digits_cnn(seed=0).to(device)
with Traffic() as traffic:
    cross_entropy(model(x), y).backward()
print(traffic)

# %% [markdown]
# Nothing was sent. `backward()` of a plain model knows nothing of other ranks. So each rank has the gradient
# of its own 32 digits. What should it have? The gradient that one device gets from all 64:

# %%
# %%ranks
own = gradient_of(model)
one = mgpu.digits_cnn(seed=0).to(device)
cross_entropy(one(images), labels).backward()
baseline = gradient_of(one)

# %%
held = ranks.run(lambda: (own[-10:].tolist(), baseline[-10:].tolist()))
mgpu.plots.gradients_on_ranks([mine for mine, _ in held], held[0][1],
                              "Gradient of the last bias, one entry a digit");

# %% [markdown]
# In each column the black bar lies in the middle between the ranks. The gradient of one device is the
# **mean** of the ranks' gradients, not their sum.

# %% [markdown]
# ## By hand: after backward()
#
# So add up and divide, one parameter after the other:

# %%
# %%ranks
def average_each(net):
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size

# %% tags=["nbval-check-output"]
# %%ranks
with Traffic() as traffic:
    average_each(model)
print(traffic)
print("same as one device:", torch.allclose(gradient_of(model), baseline, atol=1e-5))

# %% [markdown]
# That is data-parallel training, complete and correct. What is there to improve? Two things: the number of
# collectives, and their moment.

# %% [markdown]
# ## In one bucket
#
# Each collective has a price, however small its tensor is. So copy all gradients into one long tensor, a
# **[bucket](../docs/glossary.md#bucket)**, and add that up.

# %%
# %%ranks
def average_in_one_bucket(net):
    gradients = [parameter.grad for parameter in net.parameters()]
    bucket = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(bucket)
    bucket /= world_size
    parts = bucket.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts):
        gradient.copy_(part.view_as(gradient))

# %% tags=["nbval-check-output"]
# %%ranks
with Traffic() as traffic:
    average_in_one_bucket(model)
print(traffic)

# %%
def averaging_time(way):
    from mgpu_utils.timing import measure
    average = {"each": average_each, "bucket": average_in_one_bucket}[way]
    return measure(lambda: average(model), repeats=20, device=device).median

# %%
for way in ("each", "bucket"):
    print(f"{way:6} {max(ranks.run(averaging_time, way)) * 1e3:.2f} ms")

# %% [markdown]
# As many bytes, in one piece. The smaller the gradients, the more it is the number of collectives that you pay
# for.

# %% [markdown]
# ## During backward()
#
# `backward()` computes the gradients one after the other. In which order? A hook on each parameter runs as
# soon as its gradient is there:

# %% tags=["nbval-check-output"]
# %%rank 0
order, watched = [], mgpu.digits_cnn(seed=0).to(device)
for name, parameter in watched.named_parameters():
    parameter.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name[0]))
cross_entropy(watched(x), y).backward()
print("layers, in the order of their gradients:", *dict.fromkeys(order))

# %% [markdown]
# The last layer comes first. Its gradient is ready while most of the work is still to be done, and nobody has
# to wait for the rest. Start its `all_reduce` in the hook (below it is called a *sum*, for short), with
# `async_op=True`: the call returns at once, and the sum goes on beside `backward()`.

# %%
# %%ranks
pending = []

def start_sum(parameter):
    pending.append(dist.all_reduce(parameter.grad, async_op=True))

# %% [markdown]
# At the end, wait for all sums, and turn them into means:

# %%
# %%ranks
def finish_sums(net):
    while pending:
        pending.pop().wait()
    for parameter in net.parameters():
        parameter.grad /= world_size

# %% [markdown]
# Put the hook on each parameter. `finish_sums` is all that remains to be called after `backward()`:

# %%
# %%ranks
def with_hooks(net):
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(start_sum)
    return net

# %% tags=["nbval-check-output"]
# %%ranks
hooked = with_hooks(mgpu.digits_cnn(seed=0).to(device))
cross_entropy(hooked(x), y).backward()
finish_sums(hooked)
print("same as one device:", torch.allclose(gradient_of(hooked), baseline, atol=1e-5))

# %% [markdown]
# ## DDP does both
#
# `DistributedDataParallel` puts such hooks on the parameters when it wraps the model. Its hooks fill
# buckets, and a bucket that is full is added up while `backward()` goes on.

# %% tags=["nbval-check-output"]
# %%ranks
ddp = DDP(mgpu.digits_cnn(seed=0).to(device))
with Traffic() as traffic:
    cross_entropy(ddp(x), y).backward()
print(traffic)

# %% tags=["nbval-check-output"]
# %%ranks
print("same as one device:", torch.allclose(gradient_of(ddp), baseline, atol=1e-5))
print(compare_gradients(ddp))

# %%
count = ranks.run(lambda: traffic.count)[0]
mgpu.reveal("09/sums", count, "All ten gradients fit into DDP's first bucket, which holds 1 MiB.")

# %% [markdown]
# ## Time all four
#
# The gradients of the digits network are too small to see much. Here is a wider network for the same digits,
# with a global batch of 256. DDP gets small buckets of 1 MiB, so that there are several.

# %%
# %%ranks
def wide_net():
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(64, 512), nn.GELU()]
    for _ in range(4):
        layers += [nn.Linear(512, 512), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(512, 10)).to(device)

# %% [markdown]
# How many bytes of gradients are that?

# %% tags=["nbval-check-output"]
# %%ranks
many = [tensor.to(device) for tensor in mgpu.digits(train=True)[:256]]
big_x, big_y = (tensor.chunk(world_size)[rank] for tensor in many)
print(f"{sum(p.nbytes for p in wide_net().parameters()):,} bytes of gradients")

# %%
# %%ranks
plain, hooked = wide_net(), with_hooks(wide_net())
ddp = DDP(wide_net(), bucket_cap_mb=1)
ddp._set_ddp_runtime_logging_sample_rate(1)  # DDP keeps its own times: of each step

# %% [markdown]
# Four ways. Each has a network, and something that remains to be done after `backward()`:

# %%
# %%ranks
ways = {
    "after backward, one by one": (plain, average_each),
    "after backward, one bucket": (plain, average_in_one_bucket),
    "during backward, one by one": (hooked, finish_sums),
    "DDP: during backward, in buckets": (ddp, lambda net: None),
}

# %% [markdown]
# A round runs each way once; the ranks start together. The forward pass is not timed.

# %%
# %%ranks
def prepared(name):
    net, finish = ways[name]
    net.zero_grad()
    loss = cross_entropy(net(big_x), big_y)
    dist.barrier()
    return lambda: (loss.backward(), finish(net))

# %%
def backward_times(rounds):
    from mgpu_utils.timing import measure
    seconds = {name: [] for name in ways}
    for _ in range(rounds):
        for name in ways:
            seconds[name] += measure(prepared(name), warmup=0, repeats=1, device=device).seconds
    return seconds

# %%
from statistics import median

ranks.run(backward_times, 3)  # warm-up: not counted
times = ranks.run(backward_times, 10)

# %%
for name in times[0]:
    slowest = [max(both) for both in zip(*(rank_times[name] for rank_times in times))]
    print(f"{name:33} {median(slowest) * 1e3:6.1f} ms, fastest round {min(slowest) * 1e3:.1f} ms")

# %% [markdown]
# Which one is fastest depends on your machine, and on what else it does at the moment. To understand the
# numbers, look at one `backward()` of each. PyTorch's profiler notes when a rank computes and when an
# `all_reduce` runs:

# %%
def timelines():
    from mgpu_utils.backward_timeline import record_backward
    return {name: record_backward(prepared(name), device) for name in ways}

# %%
recorded = ranks.run(timelines)
lines = {name: [of_rank[name] for of_rank in recorded] for name in recorded[0]}
mgpu.plots.backward_timelines(lines, "backward() until all gradients are final, two ranks");

# %% [markdown]
# Look where the hatched bars begin. In the first two ways nothing is sent until the last gradient is there.
# In the other two the sums run *under* the computation: the early ones, of the last layers, are done or on
# their way before `backward()` ends. What sticks out at the end is all that you still wait for.

# %%
for name, of_ranks in lines.items():
    hidden = sum(line.hidden for line in of_ranks) / sum(line.communicating for line in of_ranks)
    print(f"{name:33} {hidden:4.0%} of the all_reduce time is under the computation")

# %% [markdown]
# DDP keeps such a record by itself, over all its steps:

# %%
# %%rank 0
log = ddp._get_ddp_logging_data()
names = ["backward_compute_time", "backward_comm_time", "backward_compute_comm_overlap_time"]
for name in names:
    print(f"{name:35} {log['avg_' + name] / 1e6:6.1f} ms")

# %% [markdown]
# Is overlap free? The threads of `gloo` that add up the gradients need cores, too, and `backward()` may have to
# share its own with them. Compare the lengths of the green bars in the first way and in the last.

# %% [markdown]
# ### How large should a bucket be?
#
# Small buckets start early, and there are many of them. A large one is efficient, and starts late.
# `bucket_cap_mb` sets the size. How many sums are there, in the first step and in the third?

# %%
# %%ranks
def sums_in_steps(cap):
    net, counts = DDP(wide_net(), bucket_cap_mb=cap), []
    for _ in range(3):
        loss = cross_entropy(net(big_x), big_y)
        with Traffic() as traffic:
            loss.backward()
        counts.append(traffic.count)
    return net, counts

# %% tags=["nbval-check-output"]
# %%ranks
for cap in (1, 2, 25, None):
    _, counts = sums_in_steps(cap)
    print(f"bucket_cap_mb={cap}: {counts[0]} in the first step, {counts[2]} in the third")

# %% [markdown]
# The first step always has a single bucket. DDP does not know yet in which order the gradients come. After
# that step it knows, and builds its buckets anew. That is one more reason to throw warm-up steps away when
# you measure.
#
# With `None` you get the default: 25 MiB, but a first bucket of 1 MiB, so that something is sent early. Who
# writes `bucket_cap_mb=25` loses this small bucket, and all overlap here.

# %%
def bucket_times(cap):
    from mgpu_utils.timing import measure
    net, _ = sums_in_steps(cap)
    return measure(lambda: cross_entropy(net(big_x), big_y).backward(), repeats=6, device=device).median

# %%
for cap in (1, 2, 25, None):
    slowest = max(ranks.run(bucket_times, cap))
    print(f"bucket_cap_mb={cap!s:4} {slowest * 1e3:6.1f} ms for forward and backward")

# %% [markdown]
# ## Accumulate: many backwards, one sum
#
# Say that only 8 samples at a time fit into the memory of a device. For a global batch of 64 on two ranks,
# each rank then works through 4 micro-batches, as in lesson 02, adds up the gradients, and only then steps. The
# ranks need one sum for that, not four. [`no_sync()`](../docs/glossary.md#no_sync) says so to DDP. Around what do
# you put it?

# %%
mgpu.predict("09/no-sync", int, answer=...,
             question="The first 3 of 4 backward() calls are inside no_sync(), forward() is "
                      "outside. How many all_reduces?")

# %%
# %%ranks
from contextlib import nullcontext

def backward_inside(net):
    for number, (part, target) in enumerate(zip(x.chunk(4), y.chunk(4))):
        loss = cross_entropy(net(part), target) / 4
        with net.no_sync() if number < 3 else nullcontext():
            loss.backward()

# %% [markdown]
# That was `backward` inside and `forward` outside. Now both inside:

# %%
# %%ranks
def both_inside(net):
    for number, (part, target) in enumerate(zip(x.chunk(4), y.chunk(4))):
        with net.no_sync() if number < 3 else nullcontext():
            (cross_entropy(net(part), target) / 4).backward()

# %% [markdown]
# Count the sums of each way, and compare the gradient with that of one device:

# %%
# %%ranks
def sums_of(way):
    net = DDP(mgpu.digits_cnn(seed=0).to(device))
    with Traffic() as traffic:
        way(net)
    print("same as one device:", torch.allclose(gradient_of(net), baseline, atol=1e-5))
    return sum(call.name == "all_reduce" for call in traffic.calls)

# %% tags=["nbval-check-output"]
# %%ranks
outside = sums_of(backward_inside)
print("forward outside no_sync:", outside, "all_reduce")

# %% tags=["nbval-check-output"]
# %%ranks
print("forward inside no_sync: ", sums_of(both_inside), "all_reduce")

# %%
mgpu.reveal("09/no-sync", ranks.run(lambda: outside)[0])

# %% [markdown]
# With `forward` outside, `no_sync` did nothing. DDP decides in `forward` whether the next `backward()` will
# be added up. The result is right, so nobody notices, and four times as much is sent. Put **both** inside.
#
# The division by 4 is the mean over micro-batches, as in lesson 08. It is right here because they are equally
# large.

# %% [markdown]
# ## A parameter that the loss does not use
#
# A bucket is added up when it is full. What if one of its gradients never comes? This network has a second
# head, which says whether a digit is even. The loss does not use it today.

# %%
# %%ranks
class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = mgpu.digits_cnn(seed=0)[:-1]
        self.digit, self.even = nn.Linear(512, 10), nn.Linear(512, 2)

    def forward(self, images):
        return self.digit(self.body(images))

# %% tags=["nbval-check-output"]
# %%ranks
net = DDP(TwoHeads().to(device))
cross_entropy(net(x), y).backward()
print("finished, without any error")

# %% [markdown]
# All looks well. Now compare the gradients of the ranks:

# %% tags=["nbval-check-output"]
# %%ranks
agreement = compare_gradients(net)
if rank == 0:
    print(agreement)

# %% [markdown]
# The bucket never filled up, so **nothing** was averaged. An `optimizer.step()` now would drive the replicas
# apart. The last line names the reason: `even` has no gradient.
#
# DDP itself notices at the start of the next step. This cell ends in an error:

# %% tags=["raises-exception"]
# %%ranks
net(x)

# %% [markdown]
# PyTorch's message gives the *numbers* of the parameters, 10 and 11. `compare_gradients` gives their names,
# and one step earlier. A script that ends after one step, or a test of one step, would see no error at all.
#
# Cure 1: `find_unused_parameters=True`. DDP then looks in each step for what the loss does not reach.
# Cure 2: leave the head out, or freeze it with `requires_grad_(False)`.

# %%
# %%ranks
flagged = DDP(TwoHeads().to(device), find_unused_parameters=True)
frozen = TwoHeads().to(device)
frozen.even.requires_grad_(False)
frozen = DDP(frozen)

# %% [markdown]
# Do the ranks agree now? And what is sent in one step?

# %% tags=["nbval-check-output"]
# %%ranks
for name, net in {"flag": flagged, "frozen": frozen}.items():
    with Traffic() as traffic:
        cross_entropy(net(x), y).backward()
    agree = compare_gradients(net).agree
    print(f"{name:6} the ranks agree: {agree}, in one step {traffic.count} all_reduce")

# %% [markdown]
# Both cures work. The flag has a cost: at each step DDP walks through the whole graph, and the ranks run
# one more `all_reduce`, to find out which parameters *nobody* used. Use it when the unused part changes
# from step to step, and freeze what is never used.

# %% [markdown]
# ## Send fewer bytes
#
# A **[communication hook](../docs/glossary.md#communication-hook)** replaces what DDP does with a full bucket.
# It gets the bucket, and returns a future: a promise of the averaged gradient. This one sends numbers of 2 bytes
# in place of 4:

# %%
# %%ranks
def compress(dtype, bucket):
    small = (bucket.buffer() / dist.get_world_size()).to(dtype)
    future = dist.all_reduce(small, async_op=True).get_future()
    return future.then(lambda done: done.value()[0].to(torch.float32))

# %% [markdown]
# Another one, PowerSGD, comes with PyTorch. It sends two thin matrices in place of each gradient matrix; their
# product is close to it. How thin they are is called `rank`, too (that of a matrix, not a process).
#
# What does each cost in bytes, and how far is its gradient from that of one device? Back to the digits
# network, whose gradients fit into one bucket.

# %%
# %%ranks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

def error_of(gradient):
    return ((gradient - baseline).norm() / baseline.norm()).item()

# %%
# %%ranks
def bytes_and_error(hook, state):
    net = DDP(mgpu.digits_cnn(seed=0).to(device))
    net.register_comm_hook(state, hook)
    for _ in range(3):  # PowerSGD begins with the third step
        net.zero_grad()
        loss = cross_entropy(net(x), y)
        with Traffic() as traffic:
            loss.backward()
    return traffic.nbytes, error_of(gradient_of(net))

# %% [markdown]
# First with numbers of fewer bytes, then PowerSGD, which counts by itself how many numbers it sent:

# %%
# %%ranks
points = {}
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    points[str(dtype)[6:]] = bytes_and_error(compress, dtype)

# %%
# %%ranks
for thin in (1, 4):
    state = PowerSGDState(None, matrix_approximation_rank=thin, start_powerSGD_iter=2)
    _, error = bytes_and_error(powerSGD_hook, state)
    points[f"PowerSGD, rank {thin}"] = (4 * state.compression_stats()[2], error)

# %%
measured = ranks.run(lambda: points)[0]
mgpu.plots.bytes_against_error(measured, "One step of the digits network");

# %% [markdown]
# To the left is less to send, further down is more exact. Half of the bytes cost a small error: `float16` is
# more exact, and `bfloat16` keeps the range of float32, so that nothing overflows. PowerSGD sends less still,
# and makes a large error. But it keeps what it left out, and adds it in the next step. So take the mean of
# its gradients over many steps with the same batch:

# %%
# %%ranks
def error_of_the_mean(steps):
    net, total = DDP(mgpu.digits_cnn(seed=0).to(device)), 0
    state = PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
    net.register_comm_hook(state, powerSGD_hook)
    for number in range(2 + steps):
        net.zero_grad()
        cross_entropy(net(x), y).backward()
        total = total + gradient_of(net) if number >= 2 else 0
    return error_of(total / steps)

# %%
for steps in (1, 10, 40):
    print(f"mean of {steps:2} steps: relative error {ranks.run(lambda: error_of_the_mean(steps))[0]:.2f}")

# %% [markdown]
# What is missing now comes later, and the errors do not pile up.
#
# Is it worth it? Only where the sums stick out of the timeline. Where they are hidden under `backward()`,
# fewer bytes make no step faster.
#
# A warning: use PowerSGD over `gloo` with a single bucket only, as here. It starts its second sum when the
# first one is finished. With several buckets two ranks may do that in different orders, and then the
# collectives do not match: the ranks freeze or abort.

# %% [markdown]
# ## Verdict on the claim

# %% tags=["verdict"]
ddp_lines = lines["DDP: during backward, in buckets"]
hidden = sum(line.hidden for line in ddp_lines) / sum(line.communicating for line in ddp_lines)
print(f"backward() of a plain model: no collective; with DDP: {count} all_reduce for the digits network; "
      f"in the wide one {hidden:.0%} of their time while gradients were still being computed")

# %% [markdown]
# **Half true.** It happens *during* `backward()`, but `backward()` itself collects nothing: hooks do, which
# DDP has put on the parameters, and they make the mean, not the sum.
#
# Because hooks do it, it can go wrong silently: with a parameter that gets no gradient, with a `forward`
# outside of `no_sync`, and with ranks that use different parts of the model.

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: your own DDP (15 minutes, difficulty 3 of 3)
#
# Each rank has made its own model, with weights of its own. After `my_ddp(model)` all ranks must hold the
# weights of rank 0. And after each `loss.backward()`, with no further call, each `.grad` must be that of one
# device, within 0.00001. Do not use `DistributedDataParallel`.

# %%
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

# %%
def my_ddp(model):
    ### BEGIN SOLUTION
    def average(parameter):
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size

    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
        parameter.register_post_accumulate_grad_hook(average)
    ### END SOLUTION

mgpu.check("09/own-ddp", my_ddp, ranks=ranks)

# %% [markdown]
# ### Exercise 2: four micro-batches, one sum (8 minutes, difficulty 2 of 3)
#
# `net` is a model in DDP. `images` and `labels` are this rank's shard, 32 samples. Work through it in 4
# micro-batches of 8, so that there is one `all_reduce`, and the gradient is that of one device.

# %%
def accumulate(net, images, labels):
    ### BEGIN SOLUTION
    parts = list(zip(images.chunk(4), labels.chunk(4)))
    with net.no_sync():
        for part, target in parts[:-1]:
            (cross_entropy(net(part), target) / 4).backward()
    part, target = parts[-1]
    (cross_entropy(net(part), target) / 4).backward()
    ### END SOLUTION

mgpu.check("09/accumulate", accumulate, ranks=ranks)

# %% [markdown]
# ### Exercise 3: which parameters did nobody use? (8 minutes, difficulty 2 of 3)
#
# `model` is a plain model, on each rank, after `backward()`. The ranks may have used different parts of it.
# Return the sorted names of the parameters that **no** rank's loss has used, the same list on every rank. Frozen
# parameters (`requires_grad` is False) are not meant.

# %%
def used_by_nobody(model):
    ### BEGIN SOLUTION
    mine = {name for name, p in model.named_parameters() if p.requires_grad and p.grad is None}
    everybody = [None] * world_size
    dist.all_gather_object(everybody, mine)
    return sorted(set.intersection(*everybody))
    ### END SOLUTION

mgpu.check("09/unused", used_by_nobody, ranks=ranks)

# %% [markdown]
# ## Break it: a branch that one rank does not take
#
# The rule of lesson 06: the same collectives, in the same order, equally often. With hooks it depends on which
# parameters got a gradient. So here is a model with two branches. Rank 0 takes the left one, rank 1 the right one.

# %%
class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, images, *taken):
        return sum(getattr(self, name)(images.flatten(1)) for name in taken)

# %% [markdown]
# First the averaging by hand, with a check that many people add: skip what has no gradient.

# %%
def average_what_there_is():
    net = Branches().to(device)
    cross_entropy(net(x, ["left", "right"][rank]), y).backward()
    for parameter in net.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size
    return {name: p.grad for name, p in net.named_parameters() if p.grad is not None}

# %% tags=["nbval-check-output"]
left, right = ranks.run(average_what_there_is)
print("rank 0 holds:", *left)
print("rank 1 holds:", *right)
print("the same numbers:", torch.equal(left["left.weight"], right["right.weight"]))

# %% [markdown]
# No error, and nonsense. Rank 0 was adding up `left` while rank 1 was adding up `right`. The shapes are alike, so
# the ranks added the gradient of one layer to that of another, like the metrics of lesson 06.
#
# Now DDP. Rank 0 uses one branch, and rank 1 uses both:

# %%
def backward_of_branches(**options):
    from torch.nn.parallel import DistributedDataParallel as DDP
    net = DDP(Branches().to(device), **options)
    images = torch.rand(32, 1, 8, 8, device=device)  # made-up ones are enough here
    taken = ["left"] if rank == 0 else ["left", "right"]
    net(images, *taken).square().mean().backward()
    return {name: p.grad.norm().item() for name, p in net.module.named_parameters() if p.grad is not None}

# %% tags=["raises-exception"]
ranks.timeout = 3.0
ranks.run(backward_of_branches)

# %% [markdown]
# Rank 1 has all its gradients, its bucket is full, and it waits inside `backward()` for rank 0 to add up. On rank
# 0 the bucket is never full. It has gone on and finished. Start the group afresh, and tell DDP to look for
# unused parameters:

# %%
ranks.timeout = 60.0
ranks.restart()
held = ranks.run(backward_of_branches, find_unused_parameters=True)

# %% tags=["nbval-check-output"]
for number, norms in enumerate(held):
    print(f"rank {number} has gradients for", *norms)

# %% [markdown]
# Now both ranks hold a gradient for every parameter. For `right`, rank 0 has put in a zero: it had no say in it.
# DDP warns rank 1, where nothing was unused, that the search costs time.

# %%
ranks.shutdown()

# %% [markdown]
# ## On real GPUs
#
# - `nccl` moves gradients over the link between the cards while the GPU computes. Overlap costs little there, and
#   what sticks out at the end depends on the link: NVLink hides nearly all, PCIe and network often do not.
# - PyTorch has ready hooks for two bytes: `fp16_compress_hook` and `bf16_compress_hook` in
#   `torch.distributed.algorithms.ddp_comm_hooks.default_hooks`. The second one needs a PyTorch with `nccl`.
# - A rank that waits does so in the GPU's queue. Python goes on, and the freeze shows later, at the next
#   `.item()`.

# %% [markdown]
# ## Recap
#
# 1. You counted: a plain `backward()` sends nothing. You averaged by hand, and got the gradient of one device.
# 2. You used one bucket, then hooks that start the sums during `backward()`. DDP does both.
# 3. You saw on the timeline how sums run under the computation, and what sticks out at the end.
# 4. You accumulated: `no_sync` around forward **and** backward, and one sum instead of four.
# 5. You found the unused parameter that stopped all averaging, by its name, before DDP raised its error.
# 6. You sent fewer bytes, and saw the error that this costs.
#
# **One step further.** What does one collective cost on this machine, from 4 bytes up? [Measure
# collectives](../benchmarks/04_measure_collectives.ipynb) draws it. And [Tune](../benchmarks/05_tune.ipynb) looks
# for the best size of a bucket. Next: [10 Update the parameters](10_update_the_parameters.ipynb).
