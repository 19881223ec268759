# %% [markdown]
# # Initialise and place the model
#
# In lesson 03 each rank got data of its own. With the model it is the other way round: it has to be the same
# on every rank.
#
# **You'll do**
#
# 1. move a model to a device, and find out what moves and what stays behind
# 2. build a model on two ranks, compare hashes, and make the ranks agree: by hand, then with
#    `DistributedDataParallel`
# 3. place a model that was never initialised, from the `meta` device
# 4. load a checkpoint whose keys do not fit, and see what `strict=False` does
# 5. let replicas start differently, and watch whether training brings them together
#
# **You'll learn** what has to be the same on every rank, who makes it the same, and when nobody does.
#
# **You need** about 50 minutes, two CPU cores, and lessons 00 to 03. Cells that differ on GPUs: none.

# %% [markdown]
# ## The claim
#
# > Initialise the model, then `model.to(device)`.
#
# Do you believe it? The network of this course has 10 parameter tensors. Two ranks build it, each for
# itself, and no seed is set.

# %%
import mgpu_utils as mgpu

mgpu.predict("04/equal", int, answer=...,
             question="How many of the 10 tensors are the same on both ranks?")

# %%
mgpu.predict("04/heal", ["come together", "keep their distance", "drift further apart"], answer=...,
             question="Two replicas start differently, and at each step average their gradients. They ...")

# %% [markdown]
# ## What .to does
#
# `.to(device)` is written alike for a tensor and for a model. It does two different things. As a place to
# move something to, `meta` from lesson 02 will do.

# %% tags=["nbval-check-output"]
import torch
from torch import nn

image, model = torch.rand(1, 1, 8, 8), mgpu.digits_cnn(seed=0)
image_moved, model_moved = image.to("meta"), model.to("meta")
print("tensor: still where it was:", image.device.type, "| a new one:", image_moved.device.type)
print("model:  still where it was:", model[0].weight.device.type, "| same object:", model_moved is model)

# %% [markdown]
# A tensor stays where it is, and you get a copy: write `image = image.to(device)`. A model moves **in
# place**, with all its parameters and [buffers](../docs/glossary.md#buffer) (tensors that belong to the model
# and are not trained). And with nothing else:

# %% tags=["nbval-check-output"]
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))
        self.scale = torch.ones(3)

scaled = Scaled().to("meta")
for name in ("weight", "mean", "scale"):
    print(f"{name:6} on {getattr(scaled, name).device}")

# %% [markdown]
# `scale` is a plain attribute. It stayed behind, and it is missing in `state_dict()` too. On a GPU `forward`
# would stop as in lesson 02: *Expected all tensors to be on the same device*. Make it a buffer.
#
# Half-moved models happen. `require_device` looks before you start, and names the first tensor that lies
# elsewhere:

# %%
from mgpu_utils.placement import require_device

half = mgpu.digits_cnn(seed=0)
half[7].to("meta")
try:
    require_device(half, "cpu")
except RuntimeError as error:
    print(error)

# %% [markdown]
# ### The optimizer: before .to, or after?
#
# An optimizer holds the parameters that it was given. If moving the model makes *new* parameters, it
# holds the old ones. Does it?

# %% tags=["nbval-check-output"]
def still_held(model, move):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    move(model)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return all(id(p) in held for p in model.parameters())

def skeleton():
    with torch.device("meta"):
        return mgpu.digits_cnn()

print("converted to float64:   ", still_held(mgpu.digits_cnn(), lambda m: m.to(torch.float64)))
print("from meta to the device:", still_held(skeleton(), lambda m: m.to_empty(device="cpu")))

# %%
here = mgpu.plan().single_device
print(f"from the CPU to {here}:", still_held(mgpu.digits_cnn(), lambda m: m.to(here)))

# %% [markdown]
# It depends on the move. PyTorch keeps the parameter object when it can put new values into the old one, and
# makes a new object when it cannot, as from `meta`. Then the optimizer trains tensors that nobody uses, the
# loss does not move, and there is no error. The order that is always right: **build, place, wrap, then
# make the optimizer.**

# %% [markdown]
# ## On every rank: the same model?
#
# Each rank builds the network for itself. To compare, each makes a **[hash](../docs/glossary.md#hash)** of
# every tensor: eight digits that change when any bit of the tensor changes.

# %% tags=["nbval-check-output"]
ranks = mgpu.start_ranks(2)
ranks.run(lambda: f"rank {rank} of world_size {world_size} is ready")

# %%
from mgpu_utils.parameter_hashes import HashTable, parameter_hashes

def build_unseeded():
    return parameter_hashes(mgpu.digits_cnn().to(device))

unseeded = HashTable(ranks.run(build_unseeded))
unseeded

# %% tags=["nbval-check-output"]
equal = len(unseeded.rows) - len(unseeded.different)
print(equal, "of", len(unseeded.rows), "tensors are equal:",
      [name for name in unseeded.rows if name not in unseeded.different])

# %%
mgpu.reveal("04/equal", equal)

# %% [markdown]
# Some *are* equal: the layers 1 and 4 are GroupNorm, whose weights start at 1 and whose biases start at 0,
# everywhere. Everything that was drawn at random differs.

# %% [markdown]
# ### The obvious cure: a seed
#
# With the same seed the ranks draw the same numbers. As long as nothing else on one of them draws:

# %% tags=["nbval-check-output"]
def build_seeded(logs_first):
    torch.manual_seed(0)
    if logs_first and rank == 0:
        torch.rand(1)
    return parameter_hashes(mgpu.digits_cnn())

for logs_first in (False, True):
    table = HashTable(ranks.run(build_seeded, logs_first))
    print(f"rank 0 draws a number before: {logs_first!s:5}  all equal: {table.agree}")

# %% [markdown]
# One number drawn on one rank (to choose an image for a log, say), and the models are strangers. The seed
# also makes the ranks draw alike *after* the model is built: lesson 03 showed what that does to
# augmentations.

# %% [markdown]
# ### By hand: send rank 0's model to all
#
# [`dist.broadcast(tensor, src=0)`](../docs/glossary.md#broadcast) is a collective: the tensor of every rank
# becomes that of rank 0. Do it with the data of every parameter:

# %%
def broadcast_parameters(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)

def agree_by_hand():
    torch.manual_seed(rank)
    model = mgpu.digits_cnn().to(device)
    broadcast_parameters(model)
    return parameter_hashes(model)

HashTable(ranks.run(agree_by_hand))

# %% [markdown]
# ### The real one: DDP does it when it wraps
#
# DDP broadcasts rank 0's model when you wrap it. Compare both ways on a model with a buffer, and count the
# collectives with `CommDebugMode`, as in lesson 02.

# %%
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.parallel import DistributedDataParallel as DDP

def build_with_buffer():
    torch.manual_seed(rank)
    model = mgpu.digits_cnn().to(device)
    model.register_buffer("offset", torch.full((1,), float(rank), device=device))
    return model

# %%
def collectives_of(make_equal):
    model = build_with_buffer()
    with CommDebugMode() as counter:
        make_equal(model)
    broadcasts = sum(n for op, n in counter.get_comm_counts().items() if "broadcast" in str(op))
    return broadcasts, parameter_hashes(model)

# %% tags=["nbval-check-output"]
for name, way in (("by hand", broadcast_parameters), ("DDP(model)", DDP)):
    results = ranks.run(collectives_of, way)
    wrapped = HashTable([hashes for _, hashes in results])
    print(f"{name:10} {results[0][0]:2} broadcasts, different on the ranks: {wrapped.different}")

# %% [markdown]
# By hand the **buffer** was forgotten. It is no parameter, but the model computes with it. DDP sends parameters
# *and* buffers, and with fewer messages: it packs many tensors into one. Before that it compares the
# number and the shapes of the parameters. Try it, with one rank that builds another model:

# %% tags=["raises-exception"]
def wrap_different_models():
    DDP(nn.Sequential(*[nn.Linear(4, 4) for _ in range(1 + rank)]).to(device))

ranks.run(wrap_different_models)

# %% [markdown]
# So much DDP checks, once. What about later?

# %% [markdown]
# ### Nothing checks later
#
# After wrapping, change one weight and one buffer on rank 1 alone. Then take a training step.

# %%
def changed_after_wrapping():
    module = DDP(build_with_buffer())
    with torch.no_grad():
        module.module.offset.fill_(rank + 5.0)
        if rank == 1:
            module.module[0].bias.add_(0.1)
    module(torch.zeros(2, 1, 8, 8, device=device)).sum().backward()
    return parameter_hashes(module)

later = HashTable(ranks.run(changed_after_wrapping))
later

# %% tags=["nbval-check-output"]
print("no error, and different on the ranks:", later.different)

# %% [markdown]
# The **buffer** is equal again: DDP broadcasts rank 0's buffers at the start of each forward. The
# **parameter** stays different, and nobody says so. DDP makes the replicas equal once, and from then on
# relies on equal gradients.

# %% [markdown]
# ### A layer that wants GPUs
#
# BatchNorm computes a mean over the batch. Under DDP each rank sees its own shard, so each has a mean of its
# own. `SyncBatchNorm` computes it over all ranks, and is put in *before* wrapping. It runs on GPUs only:
# on a CPU, DDP refuses to wrap it. `convert_sync_batch_norm` converts where that works. The digits network has
# GroupNorm, which needs no other sample, so this cell takes a small ResNet.

# %%
from mgpu_utils.sync_batch_norm import convert_sync_batch_norm

def convert_twice():
    import warnings
    with warnings.catch_warnings(record=True) as notices:
        for _ in range(2):
            net = convert_sync_batch_norm(mgpu.small_resnet().to(device), device)
    DDP(net)
    return sorted({type(m).__name__ for m in net.modules() if "Batch" in type(m).__name__}), notices

for number, (layers, notices) in enumerate(ranks.run(convert_twice)):
    print(f"rank {number}: {layers}, notices: {len(notices)}", *[notice.message for notice in notices])

# %% [markdown]
# On a CPU the layers stay, and you are told once, not once a rank and not once a call.

# %% [markdown]
# ## Place a model that was never initialised
#
# A large model should not be built in the CPU's memory first, filled with random numbers, and then be
# overwritten by a [checkpoint](../docs/glossary.md#checkpoint). Build its skeleton on `meta`, then reserve memory
# where it will live:

# %% tags=["nbval-check-output"]
def held_bytes(model):
    return sum(p.nbytes for p in model.parameters() if p.device.type != "meta")

lazy = skeleton()
before = held_bytes(lazy)
lazy.to_empty(device=here)
print(before, "bytes as a skeleton,", held_bytes(lazy), "bytes on the device")

# %% [markdown]
# `to_empty` reserves and does not fill: the weights are whatever lay in that memory. On the ranks this is enough
# for all but one. Rank 0 loads or draws the weights, and wrapping sends them to the others:

# %%
def from_skeleton():
    model = skeleton().to_empty(device=device)
    if rank == 0:
        model.load_state_dict(mgpu.digits_cnn(seed=0).state_dict())
    return parameter_hashes(DDP(model))

# %% tags=["nbval-check-output"]
built_here = parameter_hashes(mgpu.digits_cnn(seed=0))
table = HashTable([*ranks.run(from_skeleton), built_here])
print("both ranks and this notebook hold the same:", table.agree)

# %% [markdown]
# ## Checkpoints: whose device, whose names?
#
# A checkpoint remembers the device of every tensor. Saved on `cuda:0` and loaded by 8 ranks, all 8 copies land
# on `cuda:0`. So each rank says where it wants them: `map_location`.

# %% tags=["nbval-check-output"]
import io

file = io.BytesIO()
torch.save(mgpu.digits_cnn(seed=0).state_dict(), file)

def load_here(data):
    state = torch.load(io.BytesIO(data), map_location=device)
    return all(tensor.device == device for tensor in state.values())

print("every tensor on its rank's own device:", ranks.run(load_here, file.getvalue()))

# %% [markdown]
# The other trap is in the names. A wrapper is a module that holds yours under the name `module`:

# %% tags=["nbval-check-output"]
def names_saved():
    return list(DDP(mgpu.digits_cnn().to(device)).state_dict())

wrapped_names = ranks.run(names_saved)[0]
print(wrapped_names[:2], "instead of", list(mgpu.digits_cnn().state_dict())[:2])

# %% [markdown]
# Loaded into the plain model this stops with an error, and a search for the error suggests
# `strict=False`. Try it:

# %% tags=["nbval-check-output"]
trained = mgpu.digits_cnn(seed=1).state_dict()
saved = {f"module.{name}": tensor for name, tensor in trained.items()}

fresh = mgpu.digits_cnn(seed=2)
result = fresh.load_state_dict(saved, strict=False)
print(len(result.missing_keys), "missing,", len(result.unexpected_keys), "unexpected, no error")
print("is it the trained model:", torch.equal(fresh[0].weight, trained["0.weight"]))

# %% [markdown]
# Nothing was loaded, and nothing was said. `strict=False` means "leave out whatever does not fit", and here
# that was everything. Two ways that are right:
#
# - **Save the plain model.** `strategy.unwrap(module).state_dict()`, or `module.module.state_dict()`: then the
#   checkpoint fits one device and many.
# - **Take the prefix off** when you load somebody else's. Exercise 2.

# %% [markdown]
# ## Verdict on the claim

# %% tags=["verdict"]
alike = len(wrapped.rows) - len(wrapped.different)
print(f"two ranks that each initialised and placed the model agreed in {equal} of {len(unseeded.rows)} tensors; "
      f"wrapped in DDP, buffer included, in {alike} of {len(wrapped.rows)}")

# %% [markdown]
# **Half true.** On one device that is all; on several ranks the models must also be the *same*, and `.to`
# does nothing about that.
#
# DDP makes them the same when it wraps. After that nothing looks again: what happens then is in *Break it*.

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: make the ranks agree (8 minutes, difficulty 2 of 3)
#
# Each rank gets a `model` with other values, already on its device. Without DDP, and in place: afterwards every
# rank holds **rank 0's** parameters and buffers. The check compares all tensors, then lets the ranks compute a
# gradient together and compares it with one device.

# %%
def agree(model):
    ### BEGIN SOLUTION
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    ### END SOLUTION

mgpu.check("04/agree", agree, ranks=ranks)

# %% [markdown]
# ### Exercise 2: somebody else's checkpoint (8 minutes, difficulty 2 of 3)
#
# `state` is a state dict. It may come from the plain model or from a wrapped one. (Lesson 05 has another
# wrapper, which adds the same prefix.) Load it into the plain `model`. A checkpoint of another model must
# still raise an error. And look out: a model may have a layer of its own that is called `module`.

# %%
def load_any(model, state):
    ### BEGIN SOLUTION
    if set(state) != set(model.state_dict()) and all(name.startswith("module.") for name in state):
        state = {name.removeprefix("module."): tensor for name, tensor in state.items()}
    model.load_state_dict(state)
    ### END SOLUTION

mgpu.check("04/checkpoint", load_any)

# %% [markdown]
# ### Exercise 3: same weights, different luck (6 minutes, difficulty 2 of 3)
#
# `build(seed)` runs on every rank, and returns the network. The same `seed` gives the same weights on every rank
# and at each call, another `seed` gives others. Afterwards `torch.rand` draws *different* numbers on each rank.

# %%
def build(seed):
    ### BEGIN SOLUTION
    torch.manual_seed(seed)
    model = mgpu.digits_cnn()
    torch.manual_seed(seed + 1000 + rank)
    return model
    ### END SOLUTION

mgpu.check("04/luck", build, ranks=ranks)

# %% [markdown]
# ## Break it: ranks that start differently
#
# A hand-made data-parallel training. Each rank has its shard of every batch, and its own model. `averaged` says
# whether the ranks average their gradients, as DDP does. `same_start` says whether they begin with the same
# weights. Each step notes the loss, and how far this rank's weights are from those of rank 0.

# %%
from torch.nn.functional import cross_entropy

def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size

def distance_to_rank_0(model):
    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    theirs = mine.clone()
    dist.broadcast(theirs, src=0)
    return (mine - theirs).norm().item()

# %%
def train_by_hand(same_start, averaged):
    model = mgpu.digits_cnn(seed=0 if same_start else rank).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses, distances = [], [distance_to_rank_0(model)]
    loader = mgpu.DistributedDataParallel().loader(mgpu.digits(train=True), 64, shuffle=True)
    for epoch in range(2):
        loader.batch_sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            if averaged:
                average_gradients(model)
            optimizer.step()
            losses.append(loss.item())
            distances.append(distance_to_rank_0(model))
    return losses, distances

# %%
runs = {"same start, averaged": (True, True), "same start, not averaged": (True, False),
        "other start, averaged": (False, True), "other start, not averaged": (False, False)}
results = {name: ranks.run(train_by_hand, *how) for name, how in runs.items()}

# %%
losses = {name: [sum(pair) / 2 for pair in zip(*(rank_losses for rank_losses, _ in both))]
          for name, both in results.items()}
distances = {name: both[1][1] for name, both in results.items()}
mgpu.plots.replica_drift(distances, losses);

# %% [markdown]
# On the left, nothing looks wrong: every loss falls. On the right:
#
# - **Same start, averaged**: equal replicas, a distance of 0, one model. This is data-parallel training.
# - **Not averaged**: each rank trains a model of its own, and the two move apart.
# - **Other start, averaged**: look closely. The distance does not grow, and it does not shrink.

# %%
far = distances["other start, averaged"]
for step in (0, 1, len(far) // 2, len(far) - 1):
    print(f"after {step:2} steps: distance {far[step]:.5f}")

# %% tags=["nbval-check-output"]
outcome = ("come together" if far[-1] < 0.99 * far[0] else
           "drift further apart" if far[-1] > 1.01 * far[0] else "keep their distance")
print(f"averaged gradients, other start: the replicas {outcome}")

# %%
mgpu.reveal("04/heal", outcome)

# %% [markdown]
# Both ranks subtract the *same* update from *different* weights, so the difference stays what it was. Averaged
# gradients keep equal replicas equal. They never make unequal ones equal. And the gradient they
# average is that of two different models, at the weights of neither.
#
# This is what you would get from DDP if it did not broadcast when it wraps, or if the weights were changed on
# one rank afterwards. The check is cheap, so make it: hash the parameters on every rank, now and then. Here after
# 10 steps of `mgpu.train`, the training loop that lesson 06 builds:

# %% tags=["nbval-check-output"]
def wrapped_then_trained():
    strategy = mgpu.DistributedDataParallel()
    model = mgpu.digits_cnn(seed=rank)
    history = mgpu.train(model, mgpu.digits(train=True), strategy=strategy, max_steps=10)
    return parameter_hashes(history.model)

print("other start, wrapped in DDP, 10 steps: equal", HashTable(ranks.run(wrapped_then_trained)).agree)

# %%
ranks.shutdown()

# %% [markdown]
# ## On real GPUs
#
# - `.to(device)` copies through the link between memory and GPU. A model of many GB takes seconds, so `meta` and
#   `to_empty` pay off there.
# - Under DDP each rank places its model on its own GPU, `cuda:local_rank`. A model that all ranks put on `cuda:0`
#   is the first thing to look for when one card is full and the others are empty.
# - Drawing on the GPU uses the GPU's own random state: the same seed on a CPU and on a GPU gives other numbers.

# %% [markdown]
# ## Recap
#
# 1. You moved a model: in place, with its parameters and buffers and nothing else. The optimizer comes after.
# 2. You built it on two ranks: what is drawn at random differs. Broadcasting from rank 0 makes the ranks agree,
#    and DDP does it when it wraps, buffers included.
# 3. You placed a model from `meta`: a skeleton without memory, filled by a checkpoint or by rank 0.
# 4. You loaded a checkpoint with a prefix: `strict=False` loads nothing and says nothing. Save the plain model.
# 5. You let replicas start differently: losses fall, and averaged gradients never bring the replicas together.
#
# **One step further.** What does keeping replicas equal cost at each step? [Compare
# strategies](../benchmarks/01_compare_strategies.ipynb) measures DDP beside jobs that never talk. Next:
# [05 Wrap a model in DataParallel](05_wrap_in_data_parallel.ipynb).
