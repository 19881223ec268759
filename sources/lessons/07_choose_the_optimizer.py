# %% [markdown]
# # Choose the optimizer
#
# In lesson 06 the loop ran on every rank, and so did the last line of each step, `optimizer.step()`. Does that
# line know of the other ranks?
#
# **You'll do**
#
# 1. update two replicas by hand, and count the collectives of a real optimizer
# 2. find out what keeps replicas equal, and what pulls them apart
# 3. count the bytes that SGD and Adam keep on each rank, and share them with `ZeroRedundancyOptimizer`
# 4. make the global batch 4 and 16 times as large, and look for the learning rate that goes with it
#
# **You'll learn** what an optimizer knows about other ranks, what it costs, and how batch and learning
# rate belong together.
#
# **You need** about 45 minutes, two CPU cores, and lessons 00 to 06. Cells that differ on GPUs: none.

# %% [markdown]
# ## The claim
#
# > PyTorch's optimizers handle computation that is distributed over several GPUs.
#
# Do you believe it? Commit yourself before you go on.

# %%
import mgpu_utils as mgpu

mgpu.predict("07/collectives", int, answer=...,
             question="A model in DDP, trained with Adam: how many collectives does one step() make?")

# %% [markdown]
# ## Two ranks, one gradient
#
# The running example: each rank has its shard of 32 of the same 64 digits, and the model is wrapped in
# DDP.

# %% tags=["nbval-check-output"]
ranks = mgpu.start_ranks(2)
ranks.run(lambda: f"rank {rank} of world_size {world_size} is ready")

# %% tags=["nbval-check-output"]
# %%ranks
torch.backends.cudnn.allow_tf32 = False  # full precision on GPUs, to compare results
images, labels = (tensor.to(device) for tensor in mgpu.digits(train=True)[:64])
x, y = images.chunk(world_size)[rank], labels.chunk(world_size)[rank]
print(tuple(x.shape), tuple(y.shape))

# %%
# %%ranks
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(mgpu.digits_cnn(seed=0).to(device))
cross_entropy(model(x), y).backward()

# %% [markdown]
# After `backward()` both ranks hold the same gradient: DDP has averaged it. So what is left to do for the
# optimizer?
#
# ## By hand: one step of SGD

# %%
# %%ranks
with torch.no_grad():
    for parameter in model.parameters():
        parameter -= 0.05 * parameter.grad

# %% [markdown]
# Each rank has changed its own copy. Nobody sent a weight to anybody. Are the copies still the same?
# Compare the hashes of lesson 04:

# %%
from mgpu_utils.parameter_hashes import HashTable, parameter_hashes

HashTable(ranks.run(lambda: parameter_hashes(model)))

# %% [markdown]
# Equal, in every bit. Both ranks started from equal weights, had equal gradients, and did the same
# arithmetic.

# %% [markdown]
# ## The real optimizers: count their collectives
#
# `CommDebugMode` counts, as in lessons 02 and 04. One step with Adam:

# %%
# %%ranks
from torch.distributed.tensor.debug import CommDebugMode

def collectives(function):
    with CommDebugMode() as counted:
        function()
    return counted.get_total_counts()

# %% tags=["nbval-check-output"]
# %%ranks
optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
optimizer.zero_grad()
loss = cross_entropy(model(x), y)
print("backward():", collectives(loss.backward), " step():", collectives(optimizer.step))

# %%
counted = ranks.run(lambda: collectives(optimizer.step))
mgpu.reveal("07/collectives", counted[0], "All the talking was done in backward().")

# %% [markdown]
# Is that special to Adam? Ask eleven of PyTorch's optimizers:

# %% tags=["nbval-check-output"]
# %%ranks
names = ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "NAdam", "RAdam", "Adamax", "ASGD", "Rprop"]
made = [getattr(torch.optim, name)(model.parameters(), lr=0.001) for name in names]
print(len(made), "optimizers, collectives in step():", sum(collectives(each.step) for each in made))

# %% [markdown]
# None of them knows that there are other ranks. An optimizer sees parameters and gradients, and nothing
# else.

# %% [markdown]
# ## What keeps replicas equal
#
# Three things have to be equal on all ranks: the weights at the start, the gradient of each step, and,
# third, the **optimizer's state**. SGD with momentum keeps a running sum of gradients for each parameter.
# Adam keeps two running means.
#
# Suppose a job is restarted, and only rank 0 finds its saved [optimizer
# state](../docs/glossary.md#optimizer-state). Rank 1 begins with a fresh one:

# %%
# %%ranks
def steps(net, optimizer, count):
    for _ in range(count):
        optimizer.zero_grad()
        cross_entropy(net(x), y).backward()
        optimizer.step()

# %%
# %%ranks
model = DDP(mgpu.digits_cnn(seed=0).to(device))
optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
steps(model, optimizer, 3)
if rank == 1:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
steps(model, optimizer, 1)

# %% [markdown]
# Compare the gradients and the weights. `compare_gradients` does for gradients what the hashes do for weights:
# it says whether all ranks hold the same bits.

# %% tags=["nbval-check-output"]
from mgpu_utils.gradient_agreement import compare_gradients

print(ranks.run(lambda: str(compare_gradients(model)))[0])
table = HashTable(ranks.run(lambda: parameter_hashes(model)))
print(len(table.different), "of", len(table.rows), "weights differ between the ranks")

# %% [markdown]
# The gradients were the same on both ranks, and the weights are not, after one step. From here on each
# rank trains another network, and averages gradients that do not belong together. There is no error. DDP
# looks after gradients, and nobody looks after the optimizer: load its state on **every** rank.

# %% [markdown]
# ## What an optimizer costs in bytes
#
# How much does a rank keep for its optimizer? Count the tensors in its state.

# %%
mgpu.predict("07/adam-bytes", float, answer=...,
             question="How many bytes of state does Adam keep for each byte of parameters?")

# %%
# %%ranks
def state_bytes(optimizer):
    tensors = [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
    return sum(tensor.nbytes for tensor in tensors)

# %%
# %%ranks
def held(optimizer):
    parameters = sum(p.nbytes for p in model.parameters())
    gradients = sum(p.grad.nbytes for p in model.parameters())
    return {"parameters": parameters, "gradients": gradients, "optimizer state": state_bytes(optimizer)}

# %%
def bytes_with(name, **options):
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.001, **options)
    optimizer.step()
    return held(optimizer)

# %%
rows = {
    "SGD": ranks.run(bytes_with, "SGD"),
    "SGD, momentum": ranks.run(bytes_with, "SGD", momentum=0.9),
    "Adam": ranks.run(bytes_with, "Adam"),
}

# %%
parameter_bytes = rows["Adam"][0]["parameters"]
adam_bytes = rows["Adam"][0]["optimizer state"]
mgpu.reveal("07/adam-bytes", adam_bytes / parameter_bytes, "Two running means, and a step count a tensor.")

# %% [markdown]
# Every rank keeps all of it, and on every rank it is the same. On 64 GPUs the same running means lie in
# memory 64 times.

# %% [markdown]
# ## Share the state: ZeroRedundancyOptimizer
#
# `ZeroRedundancyOptimizer` wraps an ordinary optimizer, and deals the parameters out: each rank keeps the
# state of its own part, updates that part, and sends the new weights to the others. So this one *does*
# talk:

# %%
# %%ranks
from torch.distributed.optim import ZeroRedundancyOptimizer

zero = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.001)
zero.step()

# %% tags=["nbval-check-output"]
from mgpu_utils.traffic import Traffic

def sent_in(optimizer):
    with Traffic() as traffic:
        optimizer.step()
    return repr(traffic)

for name, sent in ranks.run(lambda: {"Adam": sent_in(optimizer), "ZeRO with Adam": sent_in(zero)})[0].items():
    print(f"{name:14} step(): {sent}")

# %% [markdown]
# One broadcast for each parameter, from the rank that updated it to all others. Together they carry the
# whole model once. In return the state is shared:

# %%
rows["ZeRO with Adam"] = ranks.run(lambda: held(zero.optim))
mgpu.plots.bytes_per_rank(rows, parameter_bytes, "What a rank holds, by optimizer");

# %% [markdown]
# Plain SGD keeps nothing. Momentum keeps one more copy of the parameters' size, Adam two. With ZeRO the
# ranks share them; the halves are not quite equal, because whole parameters are dealt out, and one of them
# holds half of this network.
#
# Does it train the same? Five steps from the same weights, with each:

# %% tags=["nbval-check-output"]
# %%ranks
nets = [DDP(mgpu.digits_cnn(seed=0).to(device)) for _ in range(2)]
steps(nets[0], torch.optim.Adam(nets[0].parameters(), lr=0.004), 5)
shared = ZeroRedundancyOptimizer(nets[1].parameters(), optimizer_class=torch.optim.Adam, lr=0.004)
steps(nets[1], shared, 5)
pairs = zip(nets[0].parameters(), nets[1].parameters())
print("same weights:", all(torch.allclose(one, two, atol=1e-6) for one, two in pairs))

# %% [markdown]
# And the time of a step? The slower rank sets it:

# %%
from mgpu_utils.timing import measure

def step_seconds(which):
    return measure({"Adam": optimizer, "ZeRO": zero}[which].step, repeats=15, device=device).median

for which in ("Adam", "ZeRO"):
    print(f"{which}: {max(ranks.run(step_seconds, which)) * 1e3:.2f} ms a step")

# %% [markdown]
# Bytes against messages. For a network of this size it is not worth it. For a model with billions of
# parameters the state of Adam is the largest thing on the device, and sharing it decides whether the model
# fits. (`fully_shard` of lesson 02 shares parameters and gradients as well, and any optimizer on top of it
# then keeps state for its shard only.)

# %% [markdown]
# ## A larger batch wants another learning rate
#
# With N devices you can work on N times as many images in a step. Then there are N times fewer steps in an
# epoch. DDP takes the *mean* of the gradients, so a step does not get longer by itself.
#
# The function below trains for 6 epochs with `mgpu.train`, and a global batch of any size, shared by the
# two ranks. `warmup` raises the learning rate from near 0 to its full size over that many steps. (A hook of the
# optimizer does it after each step.)

# %%
import torch

digits, test_digits = mgpu.digits(train=True), mgpu.digits(train=False)

def trained(batch, rate, warmup=1):
    def make(parameters):
        optimizer = torch.optim.SGD(parameters, lr=rate, momentum=0.9)
        slower = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / warmup))
        optimizer.register_step_post_hook(lambda *_: slower.step())
        return optimizer

    history = mgpu.train(mgpu.digits_cnn(seed=0), digits, strategy=mgpu.DistributedDataParallel(),
                         epochs=6, batch_size=batch, optimizer=make, eval_dataset=test_digits)
    return history.steps, history.epochs[-1]

# %%
rate = 0.02
results = {
    "batch 64": ranks.run(trained, 64, rate)[0],
    "batch 256, same rate": ranks.run(trained, 256, rate)[0],
    "batch 1024, same rate": ranks.run(trained, 1024, rate)[0],
    "batch 256, rate x 4": ranks.run(trained, 256, 4 * rate)[0],
    "batch 1024, rate x 16": ranks.run(trained, 1024, 16 * rate)[0],
    "batch 1024, rate x 16, warm-up": ranks.run(trained, 1024, 16 * rate, warmup=8)[0],
}

# %%
from itertools import accumulate

def curve(name):
    steps, _ = results[name]
    return list(accumulate(step["samples"] for step in steps)), [step["loss"] for step in steps]

# %%
panels = {"Same rate": list(results)[:3], "Rate times batch": ["batch 64", *list(results)[3:]]}
panels = {title: {name: curve(name) for name in names} for title, names in panels.items()}
mgpu.plots.training_runs(panels, reference="batch 64", top=3);

# %% [markdown]
# On the left the rate stays the same. All runs see the same images, but the larger the batch, the fewer
# the steps, and the further behind the run is. On the right the rate grows with the batch: 4 times the
# batch, 4 times the rate. This is the **[linear rule](../docs/glossary.md#linear-rule)** ([Goyal et al.
# 2017](https://arxiv.org/abs/1706.02677)). The idea: one large step does the work of 4 small ones, as long
# as the gradient hardly changes on the way.
#
# With 16 times the rate it does change on the way, most of all at the start. See how far the loss goes up
# (losses above 3 leave the picture). The **warm-up** begins with short steps, and the run comes down.

# %%
for name, (steps, last) in results.items():
    print(f"{name:31} {len(steps):3} steps, loss of the last epoch {last['loss']:.3f}, "
          f"test accuracy {last['eval_accuracy']:.3f}")

# %% [markdown]
# Compare the last lines with the first. The rule keeps a run close to the small batch for a while. Far
# beyond, nothing does: a few steps are not enough to learn what many steps learn. Where that limit lies
# depends on the model and the data, so measure it for yours.

# %% [markdown]
# ## Verdict on the claim

# %% tags=["verdict"]
def counts():
    loss = cross_entropy(model(x), y)
    return collectives(loss.backward), collectives(optimizer.step)

backward, step = ranks.run(counts)[0]
print(f"Adam under DDP: {backward} collective in backward(), {step} in step(); "
      f"{adam_bytes:,} bytes of state on every rank")

# %% [markdown]
# **False.** An ordinary optimizer knows one device; replicas stay equal because gradients and states are.
#
# It communicates nothing, and it checks nothing. `ZeroRedundancyOptimizer` is the exception: it pays
# messages for memory. And no optimizer adapts its learning rate to the number of devices. That is up to
# you.

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: four times the batch (8 minutes, difficulty 2 of 3)
#
# A run on one device uses a batch of 32 and SGD with momentum 0.9 at a rate of 0.01. Now there are 4 times
# as many devices, each with a batch of 32: a global batch of 128. Which rate keeps the loss curve? The
# check trains 3 epochs on one device with the small batch, and 3 epochs on the ranks with yours. In the
# last epoch your mean loss may be at most 1.3 times as large.

# %%
new_rate = (
    ### BEGIN SOLUTION
    4 * 0.01
    ### END SOLUTION
)

mgpu.check("07/rate", new_rate, ranks=ranks)

# %% [markdown]
# ### Exercise 2: Adam's bytes (6 minutes, difficulty 1 of 3)
#
# A model has `parameters` numbers in float32, and is trained with Adam on `world_size` ranks. How many
# bytes of optimizer state does **one rank** hold, without ZeRO and with it? Leave out the step counts, and
# let ZeRO share evenly.

# %%
def adam_state_bytes(parameters, world_size, zero):
    ### BEGIN SOLUTION
    total = 2 * 4 * parameters
    return total / world_size if zero else total
    ### END SOLUTION

mgpu.check("07/bytes", adam_state_bytes)

# %% [markdown]
# ## Break it: an optimizer for another model
#
# A model is made, then its optimizer. Later the model is made anew, perhaps to load a checkpoint, and
# wrapped in DDP.

# %%
# %%ranks
net = mgpu.digits_cnn(seed=0).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
net = DDP(mgpu.digits_cnn(seed=0).to(device))

# %%
# %%ranks
def losses_of(net, optimizer):
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

# %% tags=["nbval-check-output"]
# %%ranks
flat = losses_of(net, optimizer)
print("first and last loss the same:", flat[0] == flat[-1])

# %% [markdown]
# Twenty steps, each without an error, and the loss has not moved by a bit. It is the trap of lesson 04: the
# optimizer holds the parameters of the first model, which nobody uses any more. `backward()` fills the gradients
# of the second one. Since `zero_grad()` does not reach them either, they pile up.
#
# On a job with many ranks such a loss is easily taken for a problem of the data. Ask the optimizer whom it
# updates. This cell ends in an error:

# %%
# %%ranks
def require_own_parameters(optimizer, net):
    owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
    missing = [name for name, p in net.named_parameters() if id(p) not in owned]
    if missing:
        raise ValueError(f"the optimizer does not update {len(missing)} parameters, such as {missing[0]!r}: "
                         "make it from this model's parameters, after the model is final.")

# %% tags=["raises-exception"]
# %%ranks
require_own_parameters(optimizer, net)

# %% [markdown]
# The cure is the order of lesson 04: build, place, wrap, and the optimizer last.

# %%
# %%ranks
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
require_own_parameters(optimizer, net)
falling = losses_of(net, optimizer)

# %%
def mean_over_ranks(curves):
    return list(range(64, 64 * 21, 64)), [sum(losses) / len(losses) for losses in zip(*curves)]

runs = {"optimizer of another model": mean_over_ranks(ranks.run(lambda: flat)),
        "optimizer of this model": mean_over_ranks(ranks.run(lambda: falling))}
mgpu.plots.training_runs({"The same batch, twenty times": runs});

# %%
ranks.shutdown()

# %% [markdown]
# ## On real GPUs
#
# - Adam's state lies in GPU memory, beside parameters, gradients and activations.
#   `torch.cuda.memory_allocated()` before and after the first `step()` shows it arrive.
# - For large models `step()` is a noticeable part of a step. `fused=True` in Adam and SGD updates all
#   parameters in few kernels.
# - The rule for the learning rate is about the global batch. It does not ask on how many GPUs that batch
#   lies.

# %% [markdown]
# ## Recap
#
# 1. You updated replicas by hand, and counted the collectives of real optimizers: none in `step()`.
# 2. You saw what keeps replicas equal: equal weights at the start, equal gradients, and equal optimizer
#    states. Nobody checks the last.
# 3. You counted bytes: momentum keeps one copy of the parameters' size, Adam two, on every rank.
#    `ZeroRedundancyOptimizer` shares them, and sends the updated weights.
# 4. You made the batch larger: the learning rate grows with it, with a warm-up, up to a limit that has to
#    be measured.
#
# **One step further.** How much of the time of a step does the optimizer take on this machine? [Break down a
# step](../benchmarks/03_break_down_a_step.ipynb) measures it. Next: [08 Compute the
# loss](08_compute_the_loss.ipynb).
