# %% [markdown]
# # Split a model across devices
#
# In lesson 01 you counted the devices that can train together. The first reason to want several of them is a
# model that does not fit on one.
#
# **You'll do**
#
# 1. count the bytes that each rank holds under `DistributedDataParallel`
# 2. put the first layers on one rank and the last layers on another, and look at who waits for whom
# 3. cut the batch into micro-batches, and measure how much of the waiting goes away
# 4. cut every tensor instead, with `fully_shard`, and combine a split model with DDP
#
# **You'll learn** three ways to train a model that is too large for one device, and what each costs.
#
# **You need** about 65 minutes, two CPU cores, and lessons 00 and 01. Cells that differ on GPUs: none.

# %% [markdown]
# ## The claim
#
# > When a model is too large for one GPU, `DistributedDataParallel` helps.
#
# `DistributedDataParallel`, or **[DDP](../docs/glossary.md#ddp)**, is the class of PyTorch for training on many
# devices: one rank a device. Do you believe that it helps here? Commit yourself before you go on.

# %%
import mgpu_utils as mgpu

mgpu.predict("02/share", float, answer=..., unit="%",
             question="Two ranks train with DDP. How much of the model does each one hold?")

# %% [markdown]
# ## The model and the ranks
#
# The running example of the course is a small network for images of handwritten digits, 8 by 8 pixels each.
# It is far from too large for anything. But its bytes can be counted in the same way as those of a
# large one.

# %% tags=["nbval-check-output"]
model = mgpu.digits_cnn(seed=0)
for place, layer in enumerate(model):
    size = sum(p.nbytes for p in layer.parameters())
    print(place, f"{type(layer).__name__:10} {size:6,} bytes")

# %%
whole = sum(p.nbytes for p in model.parameters())
ranks = mgpu.start_ranks(2)

# %% [markdown]
# In all lessons one [step](../docs/glossary.md#step) uses 64 images, over all devices together. That is the
# **[global batch](../docs/glossary.md#global_batch)**. Each rank gets it,
# and the tools for this lesson:

# %% tags=["nbval-check-output"]
# %%ranks
from torch.nn.functional import cross_entropy
torch.backends.cudnn.allow_tf32 = False  # full precision on GPUs, to compare results
images, labels = (tensor.to(device) for tensor in mgpu.digits(train=True)[:64])
print("of world_size", world_size, tuple(images.shape), tuple(labels.shape))

# %% [markdown]
# Where the ranks share the batch, each takes its half:

# %%
# %%ranks
x, y = images.chunk(world_size)[rank], labels.chunk(world_size)[rank]

# %% [markdown]
# ## Count the bytes of DDP
#
# What has to fit on a device? Parameters, their gradients, what the optimizer remembers, and the
# intermediate results of the batch. Here you count the first two. (The optimizer adds nothing, or once or
# twice as much as the parameters. Lesson 07 counts that.)

# %%
# %%ranks
def bytes_of(tensors):
    pieces = [t.to_local() if hasattr(t, "to_local") else t for t in tensors]
    return sum(piece.nbytes for piece in pieces)

def bytes_held(module):
    parameters = list(module.parameters())
    gradients = [p.grad for p in parameters if p.grad is not None]
    return {"parameters": bytes_of(parameters), "gradients": bytes_of(gradients)}

# %% [markdown]
# (`to_local` is for later: some tensors are held in part.) Now wrap the model, let each rank work on its
# half of the batch, and count:

# %% tags=["nbval-check-output"]
# %%ranks
from torch.nn.parallel import DistributedDataParallel
ddp = DistributedDataParallel(mgpu.digits_cnn(seed=0).to(device))
cross_entropy(ddp(x), y).backward()
print(bytes_held(ddp))

# %% [markdown]
# Bring the counts into the notebook. `bytes_held` and `ddp` are names of the ranks, and the notebook has
# neither. So it sends a `lambda`, and each rank looks the names up when it runs it.

# %%
held = {"DDP": ranks.run(lambda: bytes_held(ddp))}
mgpu.reveal("02/share", 100 * held["DDP"][0]["parameters"] / whole, unit="%")

# %% [markdown]
# Each rank holds the whole model. Two ranks hold it twice, 64 ranks would hold it 64 times. What DDP splits
# is the *batch*: it makes training faster, and leaves the model as large as it was. So the model itself
# has to be cut.

# %% [markdown]
# ## By hand: layers on different ranks
#
# The plain idea: the first layers live on rank 0, the rest on rank 1. Such a part is called a
# **[stage](../docs/glossary.md#stage)**. Where to cut? Before layer 6, each stage holds about half of the bytes.

# %%
# %%ranks
def cut_before(layer):
    global stage, cut, shape
    net, cut = mgpu.digits_cnn(seed=0).to(device), layer
    stage = net[:cut] if rank == 0 else net[cut:]
    shape = net[:cut](images[:1]).shape[1:]

# %%
# %%ranks
cut_before(6)

# %% [markdown]
# The first stage works through the images and **sends** its result to rank 1. Then it waits for the
# gradient of that result. `dist.send` and `dist.recv` are not collectives: one rank sends, one receives.
# `timeline.note` calls a function and notes when it began and when it ended.

# %%
# %%ranks
from mgpu_utils.timeline import Timeline

timeline = Timeline(device)

def first_stage(images):
    hidden = timeline.note("forward", stage, images)
    dist.send(hidden.detach(), 1)
    grad = torch.empty_like(hidden)
    dist.recv(grad, 1)
    timeline.note("backward", hidden.backward, grad)

# %% [markdown]
# The last stage receives (it has to know the shape in advance), computes the loss, goes backward, and sends
# the gradient of what it received.

# %%
# %%ranks
def loss_of(hidden, labels, total):
    return cross_entropy(stage(hidden), labels, reduction="sum") / total

def last_stage(labels):
    hidden = torch.empty(len(labels), *shape, device=device)
    dist.recv(hidden, 0)
    hidden.requires_grad_()
    loss = timeline.note("forward", loss_of, hidden, labels, len(labels))
    timeline.note("backward", loss.backward)
    dist.send(hidden.grad, 0)

# %% [markdown]
# One step of both:

# %%
# %%ranks
def step():
    timeline.clear()
    stage.zero_grad()
    dist.barrier()
    first_stage(images) if rank == 0 else last_stage(labels)
    return list(timeline.spans)

# %%
from mgpu_utils.timeline import duration

steps = [ranks.run(lambda: step()) for _ in range(10)]
quickest = min(steps, key=duration)

# %% [markdown]
# Is the gradient right? Each rank computes the whole model alone, and compares the gradients of its stage.

# %%
# %%ranks
alone = mgpu.digits_cnn(seed=0).to(device)
cross_entropy(alone(images), labels).backward()

def same_as_alone(parameters, layers):
    pairs = zip(parameters, layers.parameters())
    return all(torch.allclose(p.grad, q.grad, atol=1e-5) for p, q in pairs)

# %% tags=["nbval-check-output"]
# %%ranks
mine = alone[:cut] if rank == 0 else alone[cut:]
print("same gradients as one device:", same_as_alone(stage.parameters(), mine))
print(bytes_held(stage))

# %% [markdown]
# Right gradients, and half of the bytes. Now look at the quickest of the ten steps, as the ranks noted it:
# the one that was least disturbed by whatever else runs here.

# %%
held["split in 2 stages"] = ranks.run(lambda: bytes_held(stage))
mgpu.plots.stage_timeline(quickest, "One step, cut before layer 6, as measured");

# %% [markdown]
# Read it from left to right: forward on rank 0, forward on rank 1, backward on rank 1, backward on rank 0.
# White is waiting. There is **no moment at which both work**, and there cannot be one: rank 1 needs what rank
# 0 makes, and on the way back it is the other way round. With two stages at least half of the time is lost,
# with four stages three quarters.
#
# Rank 1 has half of the bytes, and far less than half of the work. So it matters what the cut balances,
# bytes or time. Cut before layer 3, so that rank 1 gets the larger convolution:

# %%
ranks.run(lambda: cut_before(3))
steps = [ranks.run(lambda: step()) for _ in range(10)]
mgpu.plots.stage_timeline(min(steps, key=duration), "One step, cut before layer 3, as measured");

# %% [markdown]
# Rank 1 has more to do now, and still they take turns.

# %% [markdown]
# ## Micro-batches: both at the same time
#
# Rank 1 need not wait for all 64 images. Cut the batch into **[micro-batches](../docs/glossary.md#micro_batch)**:
# when rank 0 has finished the first one, it sends it away and goes on with the second, while rank 1 works on
# the first. This is a *[pipeline](../docs/glossary.md#pipeline)*.

# %%
mgpu.predict("02/bubble", float, answer=..., unit="%",
             question="Two equal stages, 4 micro-batches: how much of the time is still idle?")

# %% [markdown]
# The first stage, as before, but piece by piece. `dist.isend` sends in the background, and does not wait
# until the other rank has time to receive.

# %%
# %%ranks
def first_in_pieces(images, count):
    outputs, mail = [], []
    for piece in images.chunk(count):
        outputs.append(timeline.note("forward", stage, piece))
        mail.append(dist.isend(outputs[-1].detach(), 1))
    for output in outputs:
        grad = torch.empty_like(output)
        dist.recv(grad, 1)
        timeline.note("backward", output.backward, grad)
    for letter in mail:
        letter.wait()

# %% [markdown]
# The last stage. Each piece's loss is its share of the mean over all 64 images, so the gradients add up to
# the right one.

# %%
# %%ranks
def last_in_pieces(labels, count):
    received, losses, mail = [], [], []
    for piece in labels.chunk(count):
        received.append(torch.empty(len(piece), *shape, device=device))
        dist.recv(received[-1], 0)
        received[-1].requires_grad_()
        losses.append(timeline.note("forward", loss_of, received[-1], piece, len(labels)))
    for hidden, loss in zip(received, losses):
        timeline.note("backward", loss.backward)
        mail.append(dist.isend(hidden.grad, 0))
    for letter in mail:
        letter.wait()

# %%
# %%ranks
def step_in_pieces(count):
    timeline.clear()
    stage.zero_grad()
    dist.barrier()
    first_in_pieces(images, count) if rank == 0 else last_in_pieces(labels, count)
    return list(timeline.spans)

# %% tags=["nbval-check-output"]
# %%ranks
step_in_pieces(4)
mine = alone[:cut] if rank == 0 else alone[cut:]
print("same gradients as one device:", same_as_alone(stage.parameters(), mine))

# %% [markdown]
# To measure the waiting and nothing else, both stages should take equally long, and should not fight for
# the cores of this machine. So let each have one small convolution, and a layer that *waits*: 0.5 ms for
# each image, and twice that on the way back. It stands for a much larger layer, which would
# have the same place in the timeline.

# %%
# %%ranks
from torch import nn

from mgpu_utils.waiting_layer import WaitingLayer

def use_waiting_stages():
    global stage, shape
    layers = [nn.Conv2d(1, 1, 1), WaitingLayer(0.0005), nn.Flatten()]
    stage = nn.Sequential(*(layers[:2] if rank == 0 else layers)).to(device)
    shape = (1, 8, 8)

# %%
def pipeline_step(count):
    return step_in_pieces(count)

ranks.run(lambda: use_waiting_stages());

# %%
steps = [ranks.run(pipeline_step, 4) for _ in range(3)]
title = "One step in 4 micro-batches, stages that wait, as measured"
mgpu.plots.stage_timeline(min(steps, key=duration), title);

# %% [markdown]
# The numbers are those of the micro-batches. Now both ranks work most of the time. What is left is at the
# edges: rank 1 has nothing to do until the first piece arrives, and rank 0 has nothing to do until
# the first gradient comes back. This rest is called the **[bubble](../docs/glossary.md#bubble)**.
#
# How large is it? Think in slots, one for each piece of work. With p stages and m micro-batches the last
# stage starts after p - 1 empty slots, and then works for m. So m + p - 1 slots pass, and p - 1 of them
# are empty, on each rank. Backward it is the same. The idle share is (p - 1) / (m + p - 1).
#
# Measure it for 1, 2, 4 and 8 micro-batches, five runs each, after one that does not count:

# %%
from mgpu_utils.timeline import idle_share
idle = {}
for m in (1, 2, 4, 8):
    runs = [idle_share(ranks.run(pipeline_step, m)) for _ in range(6)]
    idle[m] = runs[1:]

# %%
mgpu.plots.bubble(idle, 2, "Idle time of two stages, 5 runs for each number of micro-batches");

# %%
from mgpu_utils.timing import median_interval
for m, shares in idle.items():
    middle, low, high = median_interval(shares)
    print(f"m = {m}: predicted {1 / (m + 1):.1%}, measured {middle:.1%} "
          f"(95 % interval {low:.1%} to {high:.1%})")

# %%
mgpu.reveal("02/bubble", 100 * median_interval(idle[4]).median, "Predicted: 20 %.", unit="%")

# %% [markdown]
# The formula knows no cost of handing over. The measured points do: where they lie above the line, the
# pieces have become so small that sending and waking up takes a part of the time. So more micro-batches are
# better only up to a point. Each waiting piece also keeps its intermediate results in memory.

# %% [markdown]
# ## The real API
#
# `torch.distributed.pipelining` does what you did: a `PipelineStage` holds the layers of one rank, and a
# *schedule* decides who works on which micro-batch when. `ScheduleGPipe` is the order you wrote by hand.

# %%
# %%ranks
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

def schedule_for(module):
    part = PipelineStage(module, stage_index=rank, num_stages=world_size, device=device)
    return ScheduleGPipe(part, n_microbatches=4, loss_fn=cross_entropy)

def torch_step(schedule):
    schedule.step(images) if rank == 0 else schedule.step(target=labels)

# %% tags=["nbval-check-output"]
# %%ranks
cut_before(3)
torch_step(schedule_for(stage))
mine = alone[:cut] if rank == 0 else alone[cut:]
print("same gradients as one device:", same_as_alone(stage.parameters(), mine))

# %% [markdown]
# It finds the shapes by itself, at its first step, and divides the loss by the number of pieces. (With
# pieces of different size that would be the wrong mean. Yours is right there too.) How fast is
# it, beside yours?

# %%
# %%ranks
from mgpu_utils.timing import measure

def seconds_of_both():
    use_waiting_stages()
    schedule = schedule_for(stage)
    both = (lambda: step_in_pieces(4)), (lambda: torch_step(schedule))
    return [measure(one, warmup=1, repeats=5, device=device).median for one in both]

# %%
by_hand, by_torch = (max(times) for times in zip(*ranks.run(lambda: seconds_of_both())))
print(f"by hand {by_hand * 1e3:.0f} ms, ScheduleGPipe {by_torch * 1e3:.0f} ms a step, "
      f"ideal {64 * 0.5 * 3 * 5 / 4:.0f} ms")

# %% [markdown]
# The ideal is all the waiting of one rank, and a bubble of one slot for four. For networks with
# many stages there are better schedules, `Schedule1F1B` among them: same bubble, less memory. You write
# its last stage in exercise 3.

# %% [markdown]
# ## Cut every tensor: fully_shard
#
# A pipeline cuts *between* layers. `fully_shard` cuts each parameter: every rank keeps one slice of every
# tensor, its **[shard](../docs/glossary.md#shard)**. When a layer is needed, all ranks send each other
# their shards ([`all_gather`](../docs/glossary.md#all_gather)), use the whole layer, and let it go. Each
# rank works on its own part of the batch, as under DDP. This is also known as FSDP.

# %%
# %%ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh(device.type, (world_size,))
sharded = mgpu.digits_cnn(seed=0).to(device)
for layer in sharded:
    if list(layer.parameters()):
        fully_shard(layer, mesh=mesh)
sharded = fully_shard(sharded, mesh=mesh)

# %% [markdown]
# Each layer with parameters is a unit, gathered and let go by itself. `CommDebugMode` counts what is
# sent during one step. (`fully_shard` warns of code that changes tensors in place. There is none here, so
# the warnings are switched off.)

# %% tags=["nbval-check-output"]
# %%ranks
import warnings
from torch.distributed.tensor.debug import CommDebugMode

warnings.simplefilter("ignore")
with CommDebugMode() as sent:
    cross_entropy(sharded(x), y).backward()
print({str(call).split(".")[-1]: times for call, times in sent.get_comm_counts().items()})

# %% [markdown]
# Five layers have parameters. Each was gathered twice, for the way forward and for the way back, and its
# gradient was averaged and dealt out in shards once
# ([`reduce_scatter`](../docs/glossary.md#reduce_scatter)). And the bytes?

# %% tags=["nbval-check-output"]
# %%ranks
gradients = torch.cat([p.grad.full_tensor().flatten() for p in sharded.parameters()])
wanted = torch.cat([p.grad.flatten() for p in alone.parameters()])
print("same gradients as one device:", torch.allclose(gradients, wanted, atol=1e-5))
print(bytes_held(sharded))

# %%
held["fully_shard"] = ranks.run(lambda: bytes_held(sharded))
mgpu.plots.bytes_per_rank(held, whole, "Bytes held by each rank after a step, digits network");

# %% [markdown]
# Half of the bytes on each of two ranks, 1/N on each of N. No cut has to be chosen, no rank waits
# for another's layers. The price is what you counted: the model travels twice a step, where DDP sends the
# gradients only. And for a moment one layer is there in full. Look at one while it works:

# %% tags=["nbval-check-output"]
# %%ranks
def look(layer, inputs):
    print(f"while it works {layer.weight.nbytes:,} bytes", end=", ")

handle = sharded[7].register_forward_pre_hook(look)
sharded(x)
sharded.reshard()
print(f"before and after {bytes_of([sharded[7].weight]):,}")
handle.remove()

# %% [markdown]
# ## DDP and a split model combine
#
# So has DDP no part in this? It has, on top: four ranks, two stages, and each stage twice. Ranks 0 and 1 are
# the two stages for the first half of the batch, ranks 2 and 3 for the second half. DDP joins the two
# copies of each *stage*.
#
# Four ranks, so a new group. On fewer than four GPUs they share the CPU. A
# **[mesh](../docs/glossary.md#mesh)** numbers them in two directions: which copy of the model, called a
# **[replica](../docs/glossary.md#replica)**, and which stage of it.

# %%
images, labels = mgpu.digits(train=True)[:64]
ranks = mgpu.start_ranks(4)

# %%
# %%ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("replica", "stage"))
replica, number = mesh.get_coordinate()
layers = slice(6 * number, 6 * number + 6)
stage = mgpu.digits_cnn(seed=0)[layers].to(device)
stage = DistributedDataParallel(stage, process_group=mesh["replica"].get_group())

# %% [markdown]
# The step is the naive one from above. Only the neighbour's number is new.

# %%
# %%ranks
def step_of_four(images, labels):
    if number == 0:
        hidden = stage(images)
        dist.send(hidden.detach(), rank + 1)
        grad = torch.empty_like(hidden)
        dist.recv(grad, rank + 1)
        hidden.backward(grad)
    else:
        hidden = torch.empty(len(labels), 32, 4, 4, device=device)
        dist.recv(hidden, rank - 1)
        cross_entropy(stage(hidden.requires_grad_()), labels).backward()
        dist.send(hidden.grad, rank - 1)

# %%
# %%ranks
def same_as_one_device(images, labels):
    torch.backends.cudnn.allow_tf32 = False
    alone = mgpu.digits_cnn(seed=0).to(device)
    cross_entropy(alone(images), labels).backward()
    pairs = zip(stage.parameters(), alone[layers].parameters())
    return all(torch.allclose(p.grad, q.grad, atol=1e-5) for p, q in pairs)

# %% tags=["nbval-check-output"]
def one_step(images, labels):
    images, labels = images.to(device), labels.to(device)
    step_of_four(images.chunk(2)[replica], labels.chunk(2)[replica])
    size = sum(p.nbytes for p in stage.parameters())
    right = same_as_one_device(images, labels)
    return f"replica {replica}, stage {number}: {size:,} bytes, right gradients: {right}"

ranks.run(one_step, images, labels)

# %% [markdown]
# The split makes the model fit, and DDP shares the batch. Large models are trained with two or three such
# cuts on top of each other, and a mesh names them.

# %% [markdown]
# ## Verdict on the claim

# %% tags=["verdict"]
share = {way: max(rank["parameters"] for rank in each) / whole for way, each in held.items()}
print("share of the parameters on the fullest of 2 ranks: "
      + ", ".join(f"{way} {part:.0%}" for way, part in share.items())
      + f"; 4 micro-batches leave {median_interval(idle[4]).median:.0%} idle time, "
      + "the formula says 20%")

# %% [markdown]
# **False.** DDP splits the batch, and keeps a whole copy of the model on every rank.
#
# What helps is to cut the model: between its layers, or through every tensor. The first needs
# micro-batches, or most devices wait. The second sends the model around at each step. DDP goes on top of
# a cut that is there already.

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: balance two stages (8 minutes, difficulty 1 of 3)
#
# `costs` holds the time of each layer. Return the number of the layer before which to cut, so that the
# *slower* of the two stages is as fast as possible. Each stage gets at least one layer. If two cuts are
# equally good, either will do.

# %%
def best_cut(costs):
    ### BEGIN SOLUTION
    def slower(cut):
        return max(sum(costs[:cut]), sum(costs[cut:]))
    return min(range(1, len(costs)), key=slower)
    ### END SOLUTION

mgpu.check("02/cut", best_cut)

# %% [markdown]
# ### Exercise 2: the bubble (6 minutes, difficulty 1 of 3)
#
# Return the smallest number of micro-batches with which `stages` equal stages are idle for at most `share`
# of the time, by the formula. For two stages and a share of 0.2 that is 4.

# %%
def micro_batches_for(stages, share):
    ### BEGIN SOLUTION
    count = 1
    while (stages - 1) / (count + stages - 1) > share + 1e-9:
        count += 1
    return count
    ### END SOLUTION

mgpu.check("02/bubble", micro_batches_for)

# %% [markdown]
# ### Exercise 3: one forward, one backward (15 minutes, difficulty 3 of 3)
#
# Your last stage kept the results of *all* micro-batches until the first backward. Write one that goes
# backward with each micro-batch before it receives the next. Only one is then kept, however many there are.
#
# `pieces` are the labels of the micro-batches, which need not have one size. `receive()` gives the next
# tensor from rank 0, `send_back(grad)` returns its gradient. Afterwards the gradients of **both** stages
# must be those of the mean loss over all images on one device. The check runs your function on rank 1.

# %%
def last_stage_in_turns(stage, pieces, receive, send_back):
    ### BEGIN SOLUTION
    from torch.nn.functional import cross_entropy
    total = sum(len(piece) for piece in pieces)
    for piece in pieces:
        hidden = receive().requires_grad_()
        loss = cross_entropy(stage(hidden), piece, reduction="sum") / total
        loss.backward()
        send_back(hidden.grad)
    ### END SOLUTION

mgpu.check("02/turns", last_stage_in_turns, ranks=ranks)

# %% [markdown]
# ## Break it: a tensor left on the wrong device
#
# One process can drive two devices as well, with half of the layers on each. Then nothing has to be sent by
# hand, but every tensor has to be moved. Where there are not two GPUs,
# [`meta`](../docs/glossary.md#meta-device) is the second device: every machine has it. It knows shapes and
# computes nothing, and it is as strict as a GPU. (Its trace is longer.)

# %%
import torch

devices = mgpu.plan(2).rank_devices
if devices[0].type == "cpu":
    devices = torch.device("cpu"), torch.device("meta")
first, second = devices
print(first, "and", second)

# %%
class OnTwoDevices(torch.nn.Module):
    def __init__(self):
        super().__init__()
        net = mgpu.digits_cnn(seed=0)
        self.front, self.back = net[:6].to(first), net[6:].to(second)

    def forward(self, x):
        return self.back(self.front(x))

# %% [markdown]
# This cell ends in an error. (The first line keeps the trace short.)

# %% tags=["raises-exception"]
# %xmode Plain
OnTwoDevices()(images.to(first))

# %% [markdown]
# Read the last line. A tensor of one device met the weights of another. PyTorch does not move it for you,
# because moving is slow and should be seen in the code. The trace above names your line and the layer: the
# `Linear` in `back`. The cure is one call of `.to`, where the tensor crosses over:

# %% tags=["nbval-check-output"]
class Cured(OnTwoDevices):
    def forward(self, x):
        return self.back(self.front(x).to(second))

output = Cured()(images.to(first))
print(tuple(output.shape), "on the second device:", output.device == second)

# %% [markdown]
# The labels have to be on the *second* device too, because that is where the loss is computed. Autograd
# carries the gradient back over `.to` by itself. And the ranks did not notice any of this:

# %% tags=["nbval-check-output"]
ranks.run(lambda: dist.get_world_size())

# %% [markdown]
# ## On real GPUs
#
# - `send` and `recv` go over NVLink or the bus, and the stages really compute. The white parts of
#   the timeline stay as they are.
# - The largest share of memory is often neither parameters nor gradients but intermediate results.
#   `torch.cuda.max_memory_allocated()` counts everything.
# - `fully_shard` gathers the next layer while the current one works.

# %% [markdown]
# ## Recap
#
# 1. You counted the bytes of DDP: a whole model on every rank.
# 2. You put layers on different ranks by hand, with `send` and `recv`: right gradients, about half of the
#    bytes, and never two ranks at work at once.
# 3. You cut the batch into micro-batches, and measured the idle time beside the formula, which does not know
#    what handing over costs.
# 4. You cut every tensor with `fully_shard`: half of the bytes on each rank, and the model travels at each
#    step. And you put DDP on top of a split model.
#
# **One step further.** The formula for the bubble predicted a time before you measured it.
# [Predict](../benchmarks/06_predict.ipynb) does so for whole training steps, on more devices than this machine
# has. Next: [03 Feed every device](03_feed_every_device.ipynb).
