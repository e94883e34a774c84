"""Learning from rewards; what is called loss there need not fall."""

import collections
import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from benchmarks.faults.wild.kind import Score, kind
from benchmarks.faults.wild.knobs import Knobs


class Corridor:
    """Many walkers on a grid of 5 × 5 each; the goal is a corner, a step costs 0.05."""

    def __init__(self, num):
        self.at = torch.randint(5, (num, 2))
        self.moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def see(self):
        return torch.cat([F.one_hot(self.at[:, 0], 5), F.one_hot(self.at[:, 1], 5)], 1).float()

    def act(self, action):
        self.at = (self.at + self.moves[action]).clamp(0, 4)
        done = (self.at == 4).all(1)
        self.at = torch.where(done[:, None], torch.randint(5, self.at.shape), self.at)
        return torch.where(done, 1.0, -0.05), done


@torch.no_grad()
def reward_of(choose):
    world, total = Corridor(200), 0.0
    for _ in range(40):
        total += float(world.act(choose(world.see()))[0].mean())
    trivial, best = -0.01, 0.206
    return (total / 40 - trivial) / (best - trivial)


@kind(steps=300, has="relu batch target-net", goal=0.5)
def deep_q(knobs: Knobs) -> Score:
    """Replay, an ε that falls, a target network."""
    q = knobs.net(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)))
    target = copy.deepcopy(q).requires_grad_(False)
    opt = knobs.optimizer(torch.optim.Adam(q.parameters(), lr=knobs.rate(1e-3)))
    memory = collections.deque(maxlen=300)
    env = Corridor(16)
    rng = random.Random(knobs.seed)
    w = knobs.watch(q, opt)
    for step in range(knobs.steps):
        state = env.see()
        with torch.no_grad():
            action = q(state).argmax(1)
        epsilon = max(0.1, 1 - step / (0.5 * knobs.steps))
        action = torch.where(torch.rand(16) < epsilon, torch.randint(4, (16,)), action)
        reward, done = env.act(action)
        memory.append((state, action, reward, env.see(), done))
        s, a, r, s2, d = (torch.cat(part) for part in zip(*rng.choices(memory, k=8), strict=True))
        keep = slice(0, knobs.size(128))
        s, a, r, s2, d = s[keep], a[keep], r[keep], s2[keep], d[keep]
        with torch.no_grad():
            goal = r + 0.9 * target(s2).max(1).values * ~d
        loss = F.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
        if step % 10 == 9:
            knobs.follow(target, q, 1.0)
    return lambda: reward_of(lambda s: q(s).argmax(1))


@kind(steps=150, has="relu", goal=0.5)
def reinforce(knobs: Knobs) -> Score:
    """Policy gradient with a running baseline and an entropy bonus; the loss hovers around zero."""
    policy = knobs.net(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4)))
    opt = knobs.optimizer(torch.optim.Adam(policy.parameters(), lr=knobs.rate(1e-2)))
    w = knobs.watch(policy, opt)
    for _ in range(knobs.steps):
        env, log_probs, rewards, entropies = Corridor(24), [], [], []
        for _t in range(10):
            dist = torch.distributions.Categorical(logits=policy(env.see()))
            action = dist.sample()
            reward, _ = env.act(action)
            log_probs.append(dist.log_prob(action))
            entropies.append(dist.entropy())
            rewards.append(reward)
        returns, running = [], torch.zeros(24)
        for reward in reversed(rewards):
            running = reward + 0.9 * running
            returns.insert(0, running)
        returns = torch.stack(returns)
        advantage = (returns - returns.mean(1, keepdim=True)) / (returns.std() + 1e-6)
        loss = -(torch.stack(log_probs) * advantage).mean() - 0.01 * torch.stack(entropies).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        w.step(loss)
    return lambda: reward_of(lambda s: torch.distributions.Categorical(logits=policy(s)).sample())


@kind(steps=200, has="clip", goal=0.5)
def actor_critic(knobs: Knobs) -> Score:
    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = nn.Sequential(nn.Linear(10, 64), nn.Tanh())
            self.pi = nn.Linear(64, 4)
            self.v = nn.Linear(64, 1)

        def forward(self, s):
            h = self.shared(s)
            return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)

    agent = knobs.net(Agent())
    opt = knobs.optimizer(torch.optim.RMSprop(agent.parameters(), lr=knobs.rate(3e-3), alpha=0.99, eps=1e-5))
    w = knobs.watch(agent, opt)
    env = Corridor(32)
    for _ in range(knobs.steps):
        dists, values, actions, rewards, ends = [], [], [], [], []
        for _t in range(5):
            dist, value = agent(env.see())
            action = dist.sample()
            reward, done = env.act(action)
            for kept, new in zip(
                (dists, values, actions, rewards, ends), (dist, value, action, reward, done), strict=True
            ):
                kept.append(new)
        with torch.no_grad():
            ret = agent(env.see())[1]
        policy_loss = value_loss = entropy = 0.0
        for t in reversed(range(5)):
            ret = rewards[t] + 0.9 * ret * ~ends[t]
            adv = ret - values[t]
            policy_loss = policy_loss - (dists[t].log_prob(actions[t]) * adv.detach()).mean()
            value_loss = value_loss + adv.pow(2).mean()
            entropy = entropy + dists[t].entropy().mean()
        loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), knobs.clip(0.5))
        opt.step()
        w.step(loss)
    return lambda: reward_of(lambda s: agent(s)[0].sample())
