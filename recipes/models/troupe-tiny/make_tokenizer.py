"""Trains the tokenizer of troupe-tiny (2,000 tokens, Qwen2's pattern) and writes the text that it was pretrained on.

    python make_tokenizer.py TEXT_FILE ARITHMETIC_TRAIN_JSONL PRETRAIN_JSONL

TEXT_FILE was tinyshakespeare.txt (public domain); Hugging Face's tokenizers was the trainer.
"""
import json
import pathlib
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
HERE = pathlib.Path(__file__).parent
text = open(sys.argv[1]).read()
rows = [json.loads(line) for line in open(sys.argv[2])]

tokenizer = Tokenizer(models.BPE())
tokenizer.normalizer = normalizers.NFC()
tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Split(Regex(PATTERN), "isolated"),
    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
tokenizer.train_from_iterator([text] + [r["question"] + "\n" + r["answer"] for r in rows] * 2, trainer)
tokenizer.save(str(HERE / "tokenizer.json"))
json.dump({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "model_max_length": 512,
           "tokenizer_class": "Qwen2Tokenizer",
           "chat_template": "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
                            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
          open(HERE / "tokenizer_config.json", "w"), indent=2)

draw = random.Random(7)
lines = [text[i:i + 500] for i in range(0, len(text), 500)]
for _ in range(3000):
    facts = []
    for _ in range(6):
        a, b = draw.randint(1, 60), draw.randint(1, 40)
        facts.append(draw.choice([f"{a} + {b} = {a + b}", f"{a + b} - {b} = {a}", f"{a % 9 + 1} * {b % 9 + 1} = {(a % 9 + 1) * (b % 9 + 1)}"]))
    lines.append("\n".join(facts))
draw.shuffle(lines)
with open(sys.argv[3], "w") as out:
    for line in lines:
        out.write(json.dumps({"text": line}) + "\n")
