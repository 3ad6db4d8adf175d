"""Prints what transformers and PEFT say of a checkpoint's exported directories: perplexity and bits a byte of a file's questions.

pip install torch transformers peft; python tests/reference/merged_in_transformers.py CHECKPOINT QUESTIONS.json LENGTH
Every question must fit into LENGTH tokens. Prompts are made here after docs/qat.md, from the exported vocabulary.
"""
import json
import math
import pathlib
import sys

import torch
import transformers

transformers.logging.set_verbosity_error()
checkpoint, questions, length = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
paragraphs = [paragraph for article in json.loads(questions.read_text())["data"] for paragraph in article["paragraphs"]]


def texts():
    for paragraph in paragraphs:
        for asked in paragraph["qas"]:
            yield [f"Question: {asked['question']}", "\nContext:", f" {paragraph['context']}", "\nAnswer:",
                   f" {asked['answers'][0]['text']}"]


def measured(model, tokenizer):
    """Of every token but the first, the end of the text among them; its bytes are none."""
    surprise, count, size = 0.0, 0, 0
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False)
    for parts in texts():
        pieces = [encode(part) for part in parts]
        tokens = sum(pieces, []) + [tokenizer.eos_token_id]
        assert len(tokens) <= length + 1 and tokenizer.decode(sum(pieces, [])) == "".join(parts)
        with torch.no_grad():
            logits = model(torch.tensor([tokens[:-1]])).logits[0].double()
        said = torch.nn.functional.cross_entropy(logits, torch.tensor(tokens[1:]), reduction="sum")
        surprise, count = surprise + said.item(), count + len(tokens) - 1
        size += len("".join(parts).encode()) - len(tokenizer.decode(tokens[:1]).encode())
    return {"perplexity": math.exp(surprise / count), "bits_per_byte": surprise / math.log(2) / size, "tokens": count}


def opened(directory):
    model, said = transformers.GPT2LMHeadModel.from_pretrained(directory, output_loading_info=True)
    assert not said["unexpected_keys"] and not said["mismatched_keys"], said
    assert set(said["missing_keys"]) <= {"lm_head.weight"}, said  # tied
    return model.eval(), transformers.AutoTokenizer.from_pretrained(directory)


result = {}
for config in sorted(checkpoint.glob("*/config.json")):
    result[config.parent.name] = measured(*opened(config.parent))
try:
    import peft
except ImportError:
    peft = None
for config in sorted(checkpoint.glob("*/adapter_config.json") if peft else []):
    directory = config.parent
    model, tokenizer = opened((directory / json.loads(config.read_text())["base_model_name_or_path"]).resolve())
    result[directory.name] = measured(peft.PeftModel.from_pretrained(model, directory).eval(), tokenizer)
print(json.dumps(result))
