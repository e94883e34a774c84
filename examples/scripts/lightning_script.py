"""A convolutional classifier of made-up images as a LightningModule, with a cosine schedule and clipped gradients.

python lightning_script.py --epochs 3
"""

import argparse
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning.*")
warnings.filterwarnings("ignore", message=".*LeafSpec.*")


class Shapes(L.LightningDataModule):
    """Ten patterns, shifted and under noise."""

    def __init__(self, num_samples=1600, batch_size=32):
        super().__init__()
        self.num_samples, self.batch_size = num_samples, batch_size

    def images(self, num, seed):
        patterns = torch.randn(10, 1, 12, 12, generator=torch.Generator().manual_seed(0))
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, 10, (num,), generator=generator)
        noise = torch.randn(num, 1, 12, 12, generator=generator)
        return TensorDataset(patterns[labels] + noise, labels)

    def setup(self, stage):
        self.train_set, self.val_set = self.images(self.num_samples, 1), self.images(400, 2)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=100)


class LitClassifier(L.LightningModule):
    def __init__(self, lr=2e-3, max_epochs=3, log_interval=10):
        super().__init__()
        self.save_hyperparameters()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(288, 10))

    def forward(self, x):
        return self.head(self.features(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        if batch_idx % self.hparams.log_interval == 0:
            print(f"epoch {self.current_epoch} batch {batch_idx} loss {loss.item():.6f}")
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log("val_loss", F.cross_entropy(logits, y), prog_bar=True)
        self.log("val_acc", (logits.argmax(1) == y).float().mean(), prog_bar=True)

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            metrics = self.trainer.callback_metrics
            print(f"epoch {self.current_epoch} val_loss {metrics['val_loss']:.6f} val_acc {metrics['val_acc']:.4f}")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.hparams.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def main():
    parser = argparse.ArgumentParser(description="image classifier")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--samples", type=int, default=1600)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    L.seed_everything(args.seed, verbose=False)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        accumulate_grad_batches=args.accumulate,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(LitClassifier(args.lr, args.epochs, args.log_interval), datamodule=Shapes(args.samples))


if __name__ == "__main__":
    main()
