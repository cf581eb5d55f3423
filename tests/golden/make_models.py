"""Makes the golden files of this folder with PyTorch, transformers and PEFT: see README.md for their layout.

    python tests/golden/make_models.py
"""
import json
import math
import pathlib
import shutil

import peft
import torch
import transformers

HERE = pathlib.Path(__file__).parent
VOCAB, HIDDEN = 320, 48
COMMON = dict(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=80, num_hidden_layers=2, max_position_embeddings=512,
              initializer_range=0.15, rms_norm_eps=1e-5)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32)
MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=16, rope_parameters=LLAMA3_ROPE)),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        **COMMON, num_attention_heads=4, num_key_value_heads=1, head_dim=8)),
}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def make_samples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for i in range(count):
        length = int(torch.randint(2, 90, (1,), generator=generator))
        ids = torch.randint(0, VOCAB, (length,), generator=generator).tolist()
        mask = (torch.rand(length, generator=generator) < 0.6).int().tolist()
        mask[0], mask[-1] = 0, 1
        samples.append({"token_ids": ids, "loss_mask": mask})
    return samples


def token_logps(model, ids):
    logits = model(input_ids=torch.tensor([ids])).logits[0].float()
    return torch.log_softmax(logits[:-1], -1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]


def train(model, samples, steps=20, batch=8, lr=2e-3):
    """20 steps of AdamW as transformers' Trainer sets it up; loss over the whole global batch."""
    decay = [p for n, p in model.named_parameters() if p.requires_grad and not (n.endswith("bias") or "norm" in n)]
    other = [p for n, p in model.named_parameters() if p.requires_grad and (n.endswith("bias") or "norm" in n)]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8)
    scheduler = transformers.get_cosine_schedule_with_warmup(optimizer, math.ceil(0.1 * steps), steps)
    rows = []
    for step in range(steps):
        chosen = [samples[(step * batch + i) % len(samples)] for i in range(batch)]
        count = sum(sum(s["loss_mask"]) for s in chosen)
        loss = sum(-(token_logps(model, s["token_ids"]) * torch.tensor(s["loss_mask"][1:])).sum() for s in chosen) / count
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        rows.append({"loss": loss.item(), "grad_norm": norm.item(), "learning_rate": optimizer.param_groups[0]["lr"]})
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return rows


def main():
    samples = make_samples(40, seed=1)
    (HERE / "samples.json").write_text(json.dumps(samples))
    for name, make in MODELS.items():
        torch.manual_seed(sum(map(ord, name)))
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        model = make()
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                if "norm" in parameter_name or parameter_name.endswith("bias"):
                    parameter.add_(torch.randn_like(parameter) * 0.2)
        model.config._attn_implementation = "eager"
        model.eval()
        model.save_pretrained(folder)
        golden = {"logps": [token_logps(model, s["token_ids"]).tolist() for s in samples[:8]]}

        adapter = peft.LoraConfig(r=4, lora_alpha=10, lora_dropout=0.0, target_modules=TARGETS, task_type="CAUSAL_LM",
                                  use_rslora=name == "qwen3")
        adapted = peft.get_peft_model(model, adapter)
        adapted.save_pretrained(folder / "adapter_zero")
        golden["train_lora"] = train(adapted, samples)
        adapted.eval()
        adapted.save_pretrained(folder / "adapter")
        golden["adapter_logps"] = [token_logps(adapted, s["token_ids"]).tolist() for s in samples[:8]]
        full = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
        golden["train_full"] = train(full, samples)
        (folder / "golden.json").write_text(json.dumps(golden))
        for stray in list(folder.rglob("README.md")) + list(folder.rglob("generation_config.json")):
            stray.unlink()


main()
