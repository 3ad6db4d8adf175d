"""Targets of `[dataset.sound-clips]` from the text encoders of an image generator, here T5 and CLIP (docs/data.md): `targets.py`."""

import torch
import transformers as t
from safetensors.torch import save_file

names = {"dog": "a dog", "rain": "rain"}  # category: prompt
t5, clip, found = "google/t5-v1_1-xxl", "openai/clip-vit-large-patch14", {}
words = [t.AutoTokenizer.from_pretrained(name) for name in (t5, clip)]
models = [t.T5EncoderModel.from_pretrained(t5), t.CLIPTextModel.from_pretrained(clip)]
for category, prompt in names.items():
    full = {"padding": "max_length", "truncation": True, "return_tensors": "pt"}
    ids = [word(prompt, max_length=n, **full).input_ids for word, n in zip(words, (17, 77))]
    with torch.no_grad():
        found[f"{category}.prompt_embeds"] = models[0](ids[0]).last_hidden_state[0].contiguous()  # [17, 4096]
        found[f"{category}.pooled_prompt_embeds"] = models[1](ids[1]).pooler_output[0].contiguous()  # [768]
save_file(found, "targets.safetensors")
