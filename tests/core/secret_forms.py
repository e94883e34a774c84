"""Secrets as people write them, each with a fresh random value, and values that are none."""

import base64
import datetime
import json
import random
import string
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

BASE62 = string.ascii_letters + string.digits
LOWER36 = string.ascii_lowercase + string.digits
HEX = "0123456789abcdef"


class Source:
    """Random values of the shapes that secrets have."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def of(self, letters: str, length: int) -> str:
        """So many of these letters, both cases and digits among them where they are."""
        while True:
            word = "".join(self._random.choices(letters, k=length))
            if all(
                set(word) & set(kind) for kind in (string.digits, string.ascii_lowercase) if set(letters) & set(kind)
            ):
                return word

    def password(self) -> str:
        """As people choose them: words and numbers, nothing that looks random."""
        words = self._random.sample(["winter", "purple", "monday", "coffee", "dragon", "falcon", "pepper", "silver"], 3)
        return f"{words[0]}{words[1].title()}{words[2]}{self._random.randrange(10, 10_000)}"

    def token(self) -> str:
        """32 letters and digits."""
        return self.of(BASE62, 32)

    def hex(self, length: int = 40) -> str:
        """A key in hex, as W&B has them: only its name tells it from a commit."""
        return self.of(HEX, length)

    def base64(self, num_bytes: int) -> str:
        """Bytes in base64."""
        return base64.b64encode(self._random.randbytes(num_bytes)).decode()

    def pem(self) -> str:
        """A private key in its armour."""
        lines = "\n".join(self.base64(48) for _ in range(4))
        return f"-----BEGIN RSA PRIVATE KEY-----\n{lines}\n-----END RSA PRIVATE KEY-----"

    def jwt(self) -> str:
        """A JSON web token."""
        head, body = (
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in ({"alg": "HS256", "typ": "JWT"}, {"sub": self.of(HEX, 8), "iat": 1516239022})
        )
        return f"{head}.{body}.{self.of(BASE62 + '-_', 43)}"


Made = tuple[str, list[str]]
"""A secret, and the words of a command line that hold it."""


def _one(make: Callable[[str], str], secret: Callable[[Source], str]) -> Callable[[Source], Made]:
    def made(source: Source) -> Made:
        value = secret(source)
        return value, [make(value)]

    return made


def _two(option: str, secret: Callable[[Source], str]) -> Callable[[Source], Made]:
    def made(source: Source) -> Made:
        value = secret(source)
        return value, [option, value]

    return made


def _basic(source: Source) -> Made:
    value = base64.b64encode(f"bob:{source.password()}".encode()).decode()
    return value, ["-H", f"Authorization: Basic {value}"]


password, token = Source.password, Source.token

ARGUMENTS: dict[str, Callable[[Source], Made]] = {
    "option and value": _two("--api-key", password),
    "option with underscore": _two("--api_key", password),
    "option in one word": _two("--apikey", password),
    "option in camel case": _two("--apiKey", password),
    "option in upper case": _two("--WANDB-API-KEY", Source.hex),
    "single dash": _two("-password", password),
    "db password": _two("--db-password", password),
    "passphrase of two words": _two("--passphrase", lambda source: f"{source.password()} {source.password()}"),
    "token": _two("--hub-token", password),
    "dotted option": _two("--trainer.logger.api_key", password),
    "user and password": _two("--user", lambda source: f"bob:{source.password()}"),
    "cookie option": lambda source: ((secret := source.password()), ["--cookie", f"sid={secret}"]),
    "curl": _one(lambda value: f"curl -u bob:{value} https://example.com", password),
    "value with a dash": _two("--token", lambda source: f"-{source.token()}"),
    "equals": _one(lambda value: f"--api-key={value}", password),
    "equals, with spaces and commas": _one(lambda value: f"--password={value}, and {value}", password),
    "hydra": _one(lambda value: f"api_key={value}", password),
    "hydra, added": _one(lambda value: f"+trainer.logger.api_key={value}", password),
    "variable": _one(lambda value: f"WANDB_API_KEY={value}", Source.hex),
    "quoted": _one(lambda value: f"--password='{value}'", password),
    "bearer header": _one(lambda value: f"Authorization: Bearer {value}", password),
    "basic header": _basic,
    "own header": _one(lambda value: f"X-Api-Key: {value}", password),
    "cookie": _one(lambda value: f"Cookie: theme=dark; sid={value}", token),
    "json": _one(lambda value: json.dumps({"lr": 0.1, "auth": {"password": value}}), password),
    "json in json": _one(lambda value: json.dumps({"env": json.dumps({"api_key": value})}), password),
    "yaml": _one(lambda value: f"lr: 0.1\npassword: {value}\nepochs: 3", password),
    "yaml in braces": _one(lambda value: f"{{lr: 0.1, secret_key: {value}, epochs: 3}}", password),
    "command in one word": _one(lambda value: f"python train.py --lr 0.1 --client-secret {value} --epochs 3", password),
    "database": _one(lambda value: f"postgres://bob:{value}@db.example.com:5432/runs", password),
    "password with an at sign and a slash": _one(
        lambda value: f"mysql://bob:{value}@db/runs", lambda source: f"{source.password()}@{source.password()}/x"
    ),
    "user that is a token": _one(lambda value: f"https://{value}@git.example.com/a/b.git", password),
    "login without a scheme": _one(lambda value: f"bob:{value}@db.example.com", password),
    "query": _one(lambda value: f"https://example.com/data?split=train&access_token={value}&page=2", password),
    "presigned by AWS": _one(
        lambda value: f"https://b.s3.amazonaws.com/x?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature={value}",
        lambda source: source.hex(64),
    ),
    "shared access signature": _one(
        lambda value: f"https://a.blob.core.windows.net/c?sv=2022-11-02&se=2026-01-01T00%3A00%3A00Z&sig={value}&sp=r",
        lambda source: quote(source.base64(32), safe=""),
    ),
    "signed by Google": _one(
        lambda value: f"https://storage.googleapis.com/b/o?GoogleAccessId=a&Expires=1&Signature={value}",
        lambda source: quote(source.base64(64), safe=""),
    ),
    "address in an address": _one(
        lambda value: f"https://x.org/go?to=redis%3A%2F%2Fbob%3A{value}%40cache%3A6379", password
    ),
    "encoded": _one(lambda value: f"https://x.org/go?state=%7B%22token%22%3A%22{value}%22%7D", password),
    "connection string": _one(
        lambda value: (
            f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={value};EndpointSuffix=core.windows.net"
        ),
        lambda source: source.base64(64),
    ),
    "database string": _one(
        lambda value: f"Server=db;Database=runs;User Id=bob;Password={value};Encrypt=yes", password
    ),
    "libpq": _one(lambda value: f"host=db user=bob password={value} dbname=runs", password),
    "private key": _one(lambda value: f"--set=x {value}", Source.pem),
    "OpenAI": _one(lambda value: f"--model-args={value}", lambda source: f"sk-proj-{source.of(BASE62 + '-_', 48)}"),
    "Anthropic": _one(str, lambda source: f"sk-ant-api03-{source.of(BASE62 + '-_', 80)}"),
    "GitHub": _one(str, lambda source: f"ghp_{source.of(BASE62, 36)}"),
    "GitHub, fine-grained": _one(str, lambda source: f"github_pat_{source.of(BASE62, 22)}_{source.of(BASE62, 59)}"),
    "GitLab": _one(str, lambda source: f"glpat-{source.of(BASE62, 20)}"),
    "Hugging Face": _one(str, lambda source: f"hf_{source.of(string.ascii_letters, 34)}"),
    "Slack": _one(str, lambda source: f"xoxb-{source.of(string.digits, 12)}-{source.of(BASE62, 24)}"),
    "AWS key": _one(str, lambda source: f"AKIA{source.of(string.ascii_uppercase + '234567', 16)}"),
    "AWS secret": _two("--aws-secret-access-key", lambda source: source.of(BASE62 + "+/", 40)),
    "AWS secret alone": _one(
        str, lambda source: f"{source.of(BASE62, 18)}/{source.of(BASE62, 12)}+{source.of(BASE62, 8)}"
    ),
    "Google": _one(str, lambda source: f"AIza{source.of(BASE62 + '-_', 35)}"),
    "Google OAuth": _one(str, lambda source: f"ya29.{source.of(BASE62 + '-_', 60)}"),
    "web token": _one(str, Source.jwt),
    "npm": _one(str, lambda source: f"npm_{source.of(BASE62, 36)}"),
    "PyPI": _one(str, lambda source: f"pypi-AgEIcHlwaS5vcmc{source.of(BASE62 + '-_', 60)}"),
    "SendGrid": _one(str, lambda source: f"SG.{source.of(BASE62 + '-_', 22)}.{source.of(BASE62 + '-_', 43)}"),
    "Stripe": _one(str, lambda source: f"rk_live_{source.of(BASE62, 24)}"),
    "DigitalOcean": _one(str, lambda source: f"dop_v1_{source.hex(64)}"),
    "Twilio": _one(str, lambda source: f"SK{source.hex(32)}"),
    "Telegram": _one(str, lambda source: f"{source.of('123456789', 9)}:AA{source.of(BASE62, 33)}"),
    "Discord": _one(str, lambda source: f"M{source.of(BASE62, 23)}.{source.of(BASE62, 6)}.{source.of(BASE62, 38)}"),
    "Slack webhook": _one(
        lambda value: f"https://hooks.slack.com/services/{value}",
        lambda source: f"T{source.of(string.ascii_uppercase + string.digits, 8)}/B01/{source.of(BASE62, 24)}",
    ),
    "Discord webhook": _one(
        lambda value: f"https://discord.com/api/webhooks/123456789012345678/{value}",
        lambda source: source.of(BASE62 + "-_", 68),
    ),
    "Teams webhook": _one(
        lambda value: f"https://acme.webhook.office.com/webhookb2/{value}", lambda source: source.hex(32)
    ),
    "webhook of one's own": lambda source: (
        (secret := source.password()),
        ["--alert-webhook", f"https://example.com/in/{secret}"],
    ),
    "random letters and digits": _one(str, token),
    "random, for addresses": _one(str, lambda source: source.of(BASE62 + "-_", 43)),
    "random, in a path": _one(lambda value: f"https://example.com/in/{value}/x", token),
    "random, one case": _one(str, lambda source: source.of(LOWER36, 56)),
}

SETTINGS: dict[str, Callable[[str], dict[Any, Any]]] = {
    "flat": lambda value: {"api_key": value},
    "nested": lambda value: {"logger": {"kwargs": {"authToken": value}}},
    "in a list": lambda value: {"stores": [{"url": "s3://bucket", "secretAccessKey": value}]},
    "under a secret's name": lambda value: {"credentials": {"first": {"second": value}}},
    "list under a secret's name": lambda value: {"passwords": [value, value]},
    "name and value": lambda value: {"env": [{"name": "WANDB_API_KEY", "value": value}]},
    "pairs": lambda value: {"headers": [("Accept", "text/plain"), ("X-Api-Key", value)]},
    "headers": lambda value: {"headers": {"Authorization": f"Bearer {value}"}},
    "arguments": lambda value: {"argv": ["train.py", "--hf_token", value]},
    "several values": lambda value: {"argv": ["train.py", "--api-keys", "a", value]},
    "address": lambda value: {"tracking_uri": f"https://bob:{value}@mlflow.example.com"},
    "data source": lambda value: {"dsn": f"host=db password={value}"},
    "with an odd key": lambda value: {("a", 1): {"db.password": value}},
    "in a key": lambda value: {f"postgres://bob:{value}@db/x": 1},
}


class Holder:
    """An object whose text holds a secret."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Holder(user='bob', password='{self.value}')"


SENTENCES: dict[str, Callable[[str], str]] = {
    "keyword": lambda value: f"login(user='bob', password='{value}') failed",
    "dictionary": lambda value: f"cannot connect with {{'host': 'db', 'api_key': '{value}'}}",
    "namespace": lambda value: f"Namespace(lr=0.1, hf_token='{value}', epochs=3)",
    "wrapped": lambda value: f"Config(secret=SecretStr('{value}'), lr=0.1)",
    "address": lambda value: f"HTTPError: 401 for url: https://bob:{value}@example.com/x",
    "query": lambda value: f"404 Client Error for url: https://example.com/x?lr=1&api_key={value}",
    "words": lambda value: f"Incorrect API key: {value}. Find yours in the console.",
    "header": lambda value: f"request had headers Authorization: Bearer {value}",
    "lines": lambda value: f"bad settings:\n  user: bob\n  password: {value}\n  port: 5432",
    "bytes": lambda value: str({"token": value.encode()}),
    "raw": lambda value: f'said b\'{{"access_token": "{value}", "expires_in": 3600}}\'',
    "name behind a word": lambda value: f"trial with token={value}, no password={value}",
    "option": lambda value: f"usage: train.py --auth-token {value} --lr 0.1",
}


def harmless(seed: int) -> list[str]:
    """Some 600 values that tell nothing, as settings, names and messages of trainings have them."""
    source, chance = Source(seed), random.Random(seed)
    layers = ["blocks.11.mlp.up.weight", "model.layers.31.self_attn.q_proj.weight", "encoder.token_embedding.weight"]
    layers += [
        f"transformer.h.{i}.attn.c_{kind}.{part}"
        for i in range(6)
        for kind in ("attn", "proj")
        for part in ("weight", "bias")
    ]
    layers += [f"vision_tower.blocks.{i}.key_proj.weight_orig" for i in range(5)]
    values = [source.hex(length) for length in (7, 8, 10, 12, 32, 40, 56, 64, 96, 128) for _ in range(10)]
    values += [source.hex(40).upper() for _ in range(5)] + [f"0x{source.hex(16)}" for _ in range(5)]
    values += [f"sha256:{source.hex(64)}" for _ in range(5)]
    values += [f"nvcr.io/nvidia/pytorch:24.05-py3@sha256:{source.hex(64)}" for _ in range(3)]
    values += [f"sha256-{source.base64(32)}" for _ in range(3)]
    values += [str(uuid.UUID(int=chance.getrandbits(128), version=version)) for version in (1, 4, 5) for _ in range(12)]
    values += [f"GPU-{uuid.UUID(int=chance.getrandbits(128))}" for _ in range(5)]
    values += [f"{{{uuid.UUID(int=chance.getrandbits(128))}}}" for _ in range(3)]
    values += [f"gs://bucket-{i}/checkpoints/run_{source.hex(8)}/step_{1000 * i:08d}.pt" for i in range(12)]
    values += [f"/home/user{i}/projects/Transformer_XL/outputs/2024-05-0{i % 9 + 1}/12-30-4{i % 10}" for i in range(15)]
    values += [rf"C:\Users\Bob\Documents\Exp{i}\model_best.ckpt" for i in range(10)]
    values += [f"s3://ml-data/imagenet/train/n0144{i:04d}/images-{i:05d}-of-01024.tfrecord" for i in range(15)]
    values += [f"epoch={i}-step={400 * i}-val_loss={0.1 * i:.3f}.ckpt" for i in range(10)]
    values += layers
    values += [f"torch=={major}.{minor}.0+cu12{minor}" for major in (1, 2) for minor in range(6)]
    values += [f"{package}=={i}.{i + 2}.{i + 1}" for i, package in enumerate(PACKAGES)]
    values += [f"v{i}.{i + 1}.{i + 2}-rc{i}" for i in range(10)]
    start = datetime.datetime(2024, 1, 1, 13, 45, 9, tzinfo=datetime.UTC)
    days = [start + datetime.timedelta(days=37 * i, seconds=997 * i) for i in range(10)]
    values += [
        form.format(day) for day in days for form in ("{:%Y-%m-%d}", "{:%Y%m%d-%H%M%S}", "{:%Y-%m-%dT%H:%M:%SZ}")
    ]
    values += [f"{adjective}-{noun}-{i}" for i, (adjective, noun) in enumerate(zip(ADJECTIVES, NOUNS, strict=True))]
    values += [f"resnet50_lr{lr}_bs{bs}_seed{seed}" for lr in ("3e-4", "1e-3") for bs in (64, 256) for seed in range(4)]
    values += [f"bertbaseuncasedsst2lr2e5bs32epoch3seed{i}" for i in range(4)]
    values += [f"{number}" for number in (0.1, 3e-4, -1.5, 1e-08, 12345678, 2**40, "1_000_000", "NaN", "1e+10", "50%")]
    values += [f"slurm-{4_812_345 + 17 * i}_{i}.out" for i in range(10)] + [
        f"node{i:03d}.cluster.example.org" for i in range(10)
    ]
    return values + MODELS + OPTIONS + SENTENCES_OF_TRAININGS + OBJECTS + ADDRESSES


PACKAGES = [
    *("numpy", "transformers", "google-auth", "tokenizers", "python-jose", "requests-oauthlib", "keyring", "passlib"),
    *("sentencepiece", "lightning", "cryptography", "pyjwt", "huggingface-hub", "pytest-secrets", "msal"),
]
ADJECTIVES = ["curious", "brave", "wandering", "quiet", "golden", "frosty", "swift", "lucky", "dazzling", "upbeat"]
NOUNS = ["monkey", "turkey", "river", "token", "keyboard", "author", "compass", "sunset", "session", "secretary"]
MODELS = [
    *("meta-llama/Llama-3-8B-Instruct", "mistralai/Mixtral-8x7B-Instruct-v0.1", "Qwen/Qwen2-VL-7B-Instruct-GPTQ-Int4"),
    *("openai/clip-vit-large-patch14-336", "google/gemma-2-27b-it", "laion/CLIP-ViT-H-14-laion2B-s32B-b79K"),
    *("EleutherAI/pythia-6.9b-deduped", "TheBloke/Mistral-7B-Instruct-v0.2-GPTQ", "bigcode/starcoder2-3b"),
    *("vit_base_patch16_clip_224.openai_ft_in12k_in1k", "convnextv2_huge.fcmae_ft_in22k_in1k_512"),
    *("DeepSeek-R1-Distill-Qwen-1.5B", "SmolLM2-1.7B-Instruct-Q4_K_M.gguf", "ResNet50BottleneckBlockV2Large"),
    *("Qwen2VL7BInstructGPTQInt4", "XLMRobertaXLForTokenClassification", "T5ForConditionalGeneration"),
    *("NVIDIA GeForce RTX 4090", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "AMD EPYC 7763 64-Core Processor"),
    *("NVIDIAGeForceRTX4090", "Linux-6.1.0-18-amd64-x86_64-with-glibc2.36", "cp311-cp311-manylinux_2_17_x86_64"),
    *("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_nn", "void at::native::vectorized_elementwise_kernel"),
    "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocast",
]
OPTIONS = [
    *("--lr", "--learning-rate=3e-4", "--max-tokens=4096", "--tokenizer=gpt2", "--num_tokens", "--key-dim=64"),
    *("--token-embedding-lr=0.1", "--pad-token-id=0", "--eos_token=</s>", "--monkey=banana", "--author=bob"),
    *("--password-length=12", "--use-auth", "--keys=image,label", "--sort-key=length", "--cache_key=epoch-3"),
    *(
        "--tokens-per-batch=65536",
        "+trainer.max_epochs=3",
        "model.attn.num_key_value_heads=8",
        "--api-key-file=/run/key",
    ),
    *("--session-name=first", "WANDB_MODE=offline", "CUDA_VISIBLE_DEVICES=0,1,2,3", "OMP_NUM_THREADS=8"),
    *(
        "--token=${HF_TOKEN}",
        "--api-key=$WANDB_API_KEY",
        "--mask-token=[MASK]",
        "--auth=none",
        "-u",
        "--optim=adamw_torch",
    ),
    *("--secret-santa=no", "--passes=3", "--second-pass=true", "--public-key=/keys/a.pub", "--betas=0.9,0.999"),
]
SENTENCES_OF_TRAININGS = [
    "global gradient norm 417, 38 robust deviations above its last 200 steps (median 2.1)",
    "unexpected token: comma; expected the keyword: lambda",
    "KeyError: 'token'",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x3136 and 1024x10)",
    "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity; 76.11 GiB already allocated)",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/wikitext-103-raw-v1/train-00000-of-00002.parquet'",
    "module `5` (Linear) produced 160 NaN or infinite values at step 31",
    "The tokenizer has 50,257 tokens: pad token <pad>, eos token </s>.",
    "Перед обучением данные были перемешаны; потери упали с 3.2 до 1.7.",
    "学習率は三倍高すぎました。損失が発散しました。",
    "Das Geheimnis guter Lernraten: klein anfangen und aufwärmen.",
    "La clé du succès : un bon taux d'apprentissage (3e-4).",
    "التدريب مستقر بعد ألف خطوة",
    "likely: lr-too-high (0.8): update ratio rose 3× since the warmup ended at 1500",
    "author: Bob Miller <bob@example.org>, session: morning, auth: basic",
    "steps 0–99 were recorded on host node-17 by process 12345 at 12:30:45",
    "max_tokens: 512, num_tokens=1024, pad_token_id: 0, tokens: [1, 2, 3]",
    "test_tokens.py::test_secret_names[api_key-True] PASSED",
    "AssertionError: assert 3 == 4",
    "git@github.com:org/repo.git",
    "ValueError: too many values to unpack (expected 2)",
]
OBJECTS = [
    "AdamW (\nParameter Group 0\n    amsgrad: False\n    betas: (0.9, 0.999)\n    lr: 0.0003\n)",
    "Linear(in_features=768, out_features=50257, bias=False)",
    "Conv2d(3, 64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3), bias=False)",
    "MultiheadAttention(\n  (out_proj): NonDynamicallyQuantizableLinear(in_features=64, out_features=64, bias=True)\n)",
    "Embedding(50257, 768, padding_idx=0)",
    "functools.partial(<function gelu at 0x7f3c8b2d1e50>, approximate='tanh')",
    "<torch.optim.lr_scheduler.CosineAnnealingLR object at 0x7f9a1c0b4d30>",
    "TensorSpec(shape=torch.Size([2, 3]), dtype=torch.bfloat16, device=cuda:0)",
    "TokenEmbedding(num_tokens=50257, dim=768, key=None)",
    "sonde.integrations.lightning.SondeCallback",
    "torch.nn.modules.transformer.TransformerEncoderLayer",
    "{'lr': 0.1, 'keys': ['image', 'label'], 'tokens': 512, 'eos_token': '</s>'}",
    '{"optimizer": {"name": "adamw", "betas": [0.9, 0.999]}, "max_tokens": 4096}',
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "abcdefghijklmnopqrstuvwxyz0123456789",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "ATGCGTACGTTAGCCGATTACGGATCCATGCA",
    "CC(=O)Oc1ccccc1C(=O)O",
]
ADDRESSES = [
    *(
        "https://example.com/data/train.tar.gz",
        "http://localhost:6006/#scalars",
        "https://wandb.ai/team/project/runs/3f9x2k1a",
    ),
    *(
        "https://huggingface.co/meta-llama/Llama-3-8B/resolve/main/config.json",
        "https://example.com/x?page=2&split=train",
    ),
    *(
        "sqlite:///mlflow.db",
        "ssh://git@github.com/org/repo.git",
        "git+https://github.com/org/repo.git@v1.2.3#egg=repo",
    ),
    *("tcp://10.0.0.1:29500", "file:///data/set", "abfss://container@account.dfs.core.windows.net/path/x.parquet"),
    *("https://download.pytorch.org/models/resnet50-0676ba61.pth", "mailto:bob@example.org", "http://host:80/pkg@1.2"),
    *(
        "env://",
        "unix:///var/run/docker.sock",
        "hf://datasets/HuggingFaceFW/fineweb-edu@main/sample/10BT/000_00000.parquet",
    ),
]
