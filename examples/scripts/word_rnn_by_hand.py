"""A word-level language model whose weights are updated by hand: no optimiser, and a rate that is divided by 4.

python word_rnn_by_hand.py --epochs 6
"""

import argparse
import math

import torch
from torch import nn

parser = argparse.ArgumentParser(description="word-level language model without an optimiser")
parser.add_argument("--embedding", type=int, default=64)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--lr", type=float, default=20.0)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch-size", type=int, default=20)
parser.add_argument("--bptt", type=int, default=35)
parser.add_argument("--dropout", type=float, default=0.2)
parser.add_argument("--words", type=int, default=40_000, help="words in the training text")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--log-interval", type=int, default=10)
args = parser.parse_args()

torch.manual_seed(args.seed)
NUM_WORDS = 50


def corpus(length):
    """A chain in which a word is followed by one of three."""
    followers = torch.randint(0, NUM_WORDS, (NUM_WORDS, 3), generator=torch.Generator().manual_seed(7))
    choices = torch.randint(0, 3, (length,))
    words = torch.zeros(length, dtype=torch.long)
    for i in range(1, length):
        words[i] = followers[words[i - 1], choices[i]]
    return words


def batchify(words, batch_size):
    num = words.size(0) // batch_size
    return words[: num * batch_size].view(batch_size, -1).t().contiguous()


train_data = batchify(corpus(args.words), args.batch_size)
val_data = batchify(corpus(args.words // 6), 10)
test_data = batchify(corpus(args.words // 6), 10)


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(args.dropout)
        self.encoder = nn.Embedding(NUM_WORDS, args.embedding)
        self.rnn = nn.RNN(args.embedding, args.hidden, nonlinearity="tanh")
        self.decoder = nn.Linear(args.hidden, NUM_WORDS)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, words, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(words)), hidden)
        return self.decoder(self.drop(output)).view(-1, NUM_WORDS), hidden

    def init_hidden(self, batch_size):
        return next(self.parameters()).new_zeros(1, batch_size, args.hidden)


model = RNNModel()
criterion = nn.CrossEntropyLoss()
lr = args.lr


def get_batch(source, i):
    length = min(args.bptt, len(source) - 1 - i)
    return source[i : i + length], source[i + 1 : i + 1 + length].view(-1)


def evaluate(source):
    model.eval()
    total = 0.0
    hidden = model.init_hidden(10)
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, args.bptt):
            data, targets = get_batch(source, i)
            output, hidden = model(data, hidden)
            total += len(data) * criterion(output, targets).item()
    return total / (len(source) - 1)


def train(epoch):
    model.train()
    total = 0.0
    hidden = model.init_hidden(args.batch_size)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt), 1):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        output, hidden = model(data, hidden.detach())
        loss = criterion(output, targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total += loss.item()
        if batch % args.log_interval == 0:
            mean = total / args.log_interval
            print(f"epoch {epoch} | {batch:4d} batches | lr {lr:.6g} | norm {norm:.6f} | loss {mean:.6f}")
            total = 0.0


best_val_loss = math.inf
for epoch in range(1, args.epochs + 1):
    train(epoch)
    val_loss = evaluate(val_data)
    print(f"end of epoch {epoch} | valid loss {val_loss:.6f}")
    if val_loss < best_val_loss:
        best_val_loss = val_loss
    else:
        lr /= 4.0
print(f"test loss {evaluate(test_data):.6f}")
print(f"weights {sum(p.double().square().sum().item() for p in model.parameters()):.12f}")
