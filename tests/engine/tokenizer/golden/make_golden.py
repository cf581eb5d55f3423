"""Writes the golden files of the tokenizer's tests, next to this script, with Hugging Face's tokenizers.

usage: make_golden.py TEXT_FILE...     (any English text; tests do not need it afterwards)

strings.txt      a string a line; bytes below 0x20, 0x7f, '%' and those of lines that are not UTF-8 are written %XX
classes.txt      ranges of \\p{L}, \\p{N}, \\s and \\w: class, first, last (hex)
NAME.json        a tokenizer.json trained on the strings; NAME.golden: FNV-1a of the ids of every string, then the ids of the first
                 200; NAME.decode: lists of ids, and the FNV-1a of what they decode to with and without special tokens
"""
import json
import os
import random
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2, LLAMA3 = HEAD + r"\p{N}" + TAIL, HEAD + r"\p{N}{1,3}" + TAIL
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def make_strings(files):
    rng = random.Random(2026)
    pick, chance = rng.choice, rng.random
    text = "\n".join(open(f, encoding="utf-8").read() for f in files)
    words = [w for w in text[:400000].split() if w.isascii()]
    spaces = [chr(c) for c in (9, 10, 11, 12, 13, 0x20, 0x20, 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F,
                               0x3000, 0x200B, 0xFEFF, 0x180E)]
    marks = [chr(c) for c in CHARACTERS if unicodedata.category(chr(c))[0] == "M"]
    digits = [chr(c) for c in CHARACTERS if unicodedata.category(chr(c))[0] == "N"]
    letters = [chr(c) for c in CHARACTERS if unicodedata.category(chr(c))[0] == "L" and c < 0x3000]
    emoji = [chr(c) for c in (*range(0x1F300, 0x1F650), *range(0x1F900, 0x1FA00), *range(0x2600, 0x27C0))]
    added = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>", "</tool>", "<mask>", "lone", "caf\u00e9", "cafe\u0301", "<|im", "<|im_", "<a>",
             "<a><b>", "\u00e9\u00e0", "two words", "<|begin_of_text|>"]
    out = []
    # every block: some characters of every 64
    for first in (*range(0, 0x33480, 64), *range(0xE0000, 0xE0200, 64), 0xF0000, 0xFFFC0, 0x100000, 0x10FFC0):
        chars = [chr(first + k) for k in rng.sample(range(64), 14) if not 0xD800 <= first + k < 0xE000]
        s = ""
        for c in chars:
            s += c
            if chance() < 0.3:
                s += pick([" ", "  ", "'", "a", "7", ".", "\n", "\u0301", "'s"])
        out.append(s)
    for _ in range(1200):  # combining marks in any order
        s = ""
        for _ in range(rng.randrange(1, 6)):
            s += pick(words[:500] + letters[:800]) if chance() < 0.5 else pick("aeoAuinc ")
            s += "".join(pick(marks) if chance() < 0.5 else pick("\u0301\u0323\u0300\u0308\u0327\u0345\u0334\u3099") for _ in range(rng.randrange(1, 5)))
        out.append(s)
    for _ in range(400):
        s = ""
        for _ in range(rng.randrange(1, 8)):
            s += pick(emoji) + pick(["", "", "\ufe0f", "\u200d", "\U0001f3fd", " ", "a", "\u20e3"])
        out.append(s)
    for _ in range(1000):  # spaces of every kind
        s = ""
        for _ in range(rng.randrange(1, 8)):
            s += "".join(pick(spaces) for _ in range(rng.randrange(0, 5))) + pick([pick(words), "x", "1", "!", "", "\u4e2d", "\r\n", "\n\n", " "])
        out.append(s)
    for _ in range(500):  # numbers
        out.append("".join(pick("0123456789" if chance() < 0.7 else digits) if chance() < 0.85 else pick([" ", ",", ".", "a", "-"])
                           for _ in range(rng.randrange(1, 30))))
    for _ in range(700):  # contractions
        s = ""
        for _ in range(rng.randrange(1, 6)):
            suffix = pick(["s", "t", "re", "ve", "m", "ll", "d", "l", "r", "v", "\u017f", "st", "\ufb06", "\u212a", "re\u0301", "l l"])
            s += pick(words + [" ", "", "1", "\u00e9"] * 50) + pick("''''\u2019\u02bc") + "".join(c.upper() if chance() < 0.5 else c for c in suffix)
            s += pick(["", " ", "\n", "x"])
        out.append(s)
    for _ in range(1200):  # added tokens inside text
        s = ""
        for _ in range(rng.randrange(1, 6)):
            s += pick([pick(words), " ", "  ", "\n", "\u3000", "", "e\u0301", "_", "1", ".", "\u00e9"]) + pick(added) + pick(["", "", " ", "\t ", "\u0301"])
        out.append(s)
    for _ in range(700):  # scripts mixed
        s = ""
        for _ in range(rng.randrange(2, 14)):
            s += pick([pick(letters), pick(digits), pick(words), " ", chr(pick(CHARACTERS)), pick("-_/\\()[]{}#@$"), chr(rng.randrange(0x4E00, 0xA000)),
                       chr(rng.randrange(0xAC00, 0xD7A4)), chr(rng.randrange(0x1100, 0x1200))])
        out.append(s)
    for _ in range(500):  # any ASCII
        out.append("".join(chr(rng.randrange(128)) for _ in range(rng.randrange(1, 40))))
    for _ in range(900):  # text and its line ends
        at = rng.randrange(len(text) - 200)
        out.append(text[at : at + rng.randrange(20, 140)])
    out += ["", " ", "\n", "a" * 3000, " " * 700, "ab" * 900, "9" * 500, "\n" * 300 + "x", "=" * 900, "\u0301" * 300, "'", "''s", "\0", "the" * 400]
    raw = [s.encode() for s in out]
    for _ in range(500):  # bytes that are not UTF-8
        b = bytearray("".join(pick([pick(words), chr(pick(CHARACTERS)), pick(emoji), " "]) for _ in range(rng.randrange(1, 5))).encode())
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(b) + 1)
            if chance() < 0.5:
                b[at:at] = bytes(rng.choices([0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xF5, 0xFF, 0xA0, 0x9F, 0x90], k=rng.randrange(1, 4)))
            else:
                del b[at : at + 1]
        raw.append(bytes(b))
    rng.shuffle(raw)
    return raw


def escape(raw):
    try:
        raw.decode()
        high = 256
    except UnicodeDecodeError:
        high = 128
    return b"".join(b"%%%02X" % b if b < 32 or b in (37, 127) or b >= high else bytes([b]) for b in raw)


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return "%016x" % h


def hash_ids(ids):
    return fnv(b"".join(i.to_bytes(4, "little") for i in ids))


def ranges(members):
    out = []
    for c in sorted(members):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def write_classes():
    with open(f"{HERE}/classes.txt", "w") as f:
        for name, pattern in (("L", r"\p{L}"), ("N", r"\p{N}"), ("S", r"\s")):
            split = pre_tokenizers.Split(Regex(pattern), "removed")
            for a, b in ranges(c for c in CHARACTERS if not split.pre_tokenize_str(chr(c))):
                f.write(f"{name} {a:x} {b:x}\n")
        one = Tokenizer(models.BPE(vocab={}, merges=[]))
        one.add_tokens([AddedToken("Q", single_word=True, normalized=False)])
        for a, b in ranges(c for c in CHARACTERS if not one.encode("Q" + chr(c)).ids):
            f.write(f"W {a:x} {b:x}\n")


def train(name, texts):
    t = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    if name.startswith("gpt2"):
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=name == "gpt2_prefix", use_regex=True)
    else:
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(QWEN2 if name == "qwen2" else LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if name == "qwen2":
        t.normalizer = normalizers.NFC()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=SPECIALS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    t.train_from_iterator(texts, trainer)
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("<|begin_of_text|>", normalized=False)])
    t.add_tokens([AddedToken("<tool>", normalized=False, lstrip=True, rstrip=True), AddedToken("</tool>", normalized=False, rstrip=True),
                  AddedToken("lone", single_word=True, normalized=True), AddedToken("cafe\u0301", normalized=True), AddedToken("<a>", normalized=False),
                  AddedToken("<a><b>", normalized=False), AddedToken("\u00e9\u00e0", normalized=False), AddedToken("two words", normalized=True),
                  AddedToken("<|im", normalized=False)])
    if name == "llama3":
        bos = "<|begin_of_text|>"
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                                processors.TemplateProcessing(f"{bos} $A", f"{bos} $A {bos} $B", [(bos, t.token_to_id(bos))])])
    state = json.loads(t.to_str())
    if name.startswith("gpt2"):  # the older form
        state["model"]["merges"] = [" ".join(m) for m in state["model"]["merges"]]
    with open(f"{HERE}/{name}.json", "w", encoding="utf-8") as f:
        json.dump(state, f, ensure_ascii=False, separators=(",", ":"))
    return Tokenizer.from_str(json.dumps(state))


def main():
    raw = make_strings(sys.argv[1:])
    with open(f"{HERE}/strings.txt", "wb") as f:
        f.write(b"".join(escape(r) + b"\n" for r in raw))
    write_classes()
    texts = [r.decode("utf-8", "replace") for r in raw]
    for name in ("gpt2", "gpt2_prefix", "llama3", "qwen2"):
        t = train(name, texts)
        rng = random.Random(7)
        with open(f"{HERE}/{name}.golden", "w") as f:
            for i, text in enumerate(texts):
                ids = t.encode(text).ids
                f.write(hash_ids(ids) + ("" if i >= 200 else " " + " ".join(map(str, ids))) + "\n")
        size = t.get_vocab_size()
        with open(f"{HERE}/{name}.decode", "w") as f:
            for i in range(500):
                if i % 2:
                    ids = [rng.randrange(size) for _ in range(rng.randrange(1, 12))]
                else:  # text with tokens missing: characters that break off
                    ids = [x for x in t.encode(texts[rng.randrange(len(texts))][:40]).ids if rng.random() < 0.8][:30]
                plain, skipped = (t.decode(ids, skip_special_tokens=skip) for skip in (False, True))
                f.write(" ".join([fnv(plain.encode()), fnv(skipped.encode()), *map(str, ids)]) + "\n")
        print(name, size, "tokens", len(texts), "strings")


if __name__ == "__main__":
    main()
