"""Writes vit_tiny.safetensors and gpt2_vl_tiny.safetensors as Hugging Face does, and vision_language.json: pictures and tokens,
and what the two make of them together: the picture's patches without a class token, nanoVLM's pixel shuffle, a projector, and
GPT-2 over the picture's tokens and the text's. Its loss is found a second time, by TRL's SFTTrainer with `assistant_only_loss`.

pip install torch transformers safetensors trl; python tests/reference/vision_language.py
The files here: Python 3.11, torch 2.15.0, transformers 5.23.0, trl 1.16.0, safetensors 0.8.0.
"""
import copy
import json
import pathlib
import shutil
import tempfile

import datasets
import tokenizers
import torch
import transformers
import trl

torch.manual_seed(27)  # of the first 100, the answers vary, depend on the pictures, and no second best token is near
EXAMPLES, SIDE, FACTOR, TEXT, PROMPT, PADDING, PROMPTS, NEW = 2, 16, 2, 10, 5, 2, [5, 3], 8
vit = transformers.ViTModel(transformers.ViTConfig(
    image_size=SIDE, patch_size=4, num_channels=3, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=32, hidden_act="gelu", layer_norm_eps=1e-12, hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
), add_pooling_layer=False).eval()
gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(
    vocab_size=13, n_positions=32, n_embd=8, n_layer=2, n_head=2, activation_function="gelu_new", attn_pdrop=0.0,
    embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=0,
)).eval()
place = pathlib.Path(__file__).parent
norms = {"layernorm", "layernorm_before", "layernorm_after", "ln_1", "ln_2", "ln_f"}
for model, file in ((vit, "vit_tiny"), (gpt2, "gpt2_vl_tiny")):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn_like(parameter)
            scale = name.endswith("weight") and name.split(".")[-2] in norms
            parameter.copy_(1 + 0.1 * drawn if scale else 0.3 * drawn)
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory, safe_serialization=True)
        shutil.copyfile(pathlib.Path(directory) / "model.safetensors", place / f"{file}.safetensors")
projector = (0.3 * torch.randn(FACTOR * FACTOR * 8, 8)).requires_grad_()
pictures = torch.randint(0, 256, (EXAMPLES, SIDE, SIDE, 3))
tokens = torch.randint(1, 13, (EXAMPLES, TEXT))
tokens[1, -PADDING:] = 0
labels = tokens.clone()
labels[:, :PROMPT] = -100
labels[1, -PADDING:] = -100


def encoded(vit, x):
    for layer in vit.layers:
        x = layer(x)
    return vit.layernorm(x)


def seen(vit, projector):
    """The patches, the groups that the pixel shuffle makes, and the picture's tokens."""
    pixels = ((pictures / 255 - 0.5) / 0.5).permute(0, 3, 1, 2).to(projector.dtype)
    embedded = vit.embeddings.patch_embeddings(pixels)
    position = vit.embeddings.position_embeddings
    # Our use of the modules is the model's own: with the class token they give what it gives.
    whole = torch.cat([vit.embeddings.cls_token.expand(EXAMPLES, -1, -1), embedded], 1) + position
    assert torch.equal(encoded(vit, whole), vit(pixels).last_hidden_state)
    x = patches = encoded(vit, embedded + position[:, 1:])
    batch, count, width = x.shape
    side = int(count**0.5)
    x = x.view(batch, side, side, width)
    x = x.reshape(batch, side // FACTOR, FACTOR, side // FACTOR, FACTOR, width).permute(0, 1, 3, 2, 4, 5)
    shuffled = x.reshape(batch, (side // FACTOR) ** 2, width * FACTOR * FACTOR)
    return patches, shuffled, shuffled @ projector


def answered(gpt2, image, text):
    """The logits at the text's positions."""
    both = torch.cat([image, gpt2.transformer.wte(text)], 1)
    return gpt2(inputs_embeds=both).logits[:, image.shape[1]:]


def everything(vit, gpt2, projector):
    patches, shuffled, image = seen(vit, projector)
    logits = answered(gpt2, image, tokens[:, :-1])
    counted = (labels[:, 1:] != -100).sum().item()
    total = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum")
    weights = {"projector": projector,
               "embeddings.patch_embeddings.projection.weight": vit.embeddings.patch_embeddings.projection.weight,
               "transformer.wte.weight": gpt2.transformer.wte.weight}
    gradients = dict(zip(weights, torch.autograd.grad(total / counted, list(weights.values()), retain_graph=True)))
    return patches, shuffled, image, logits, counted, total, gradients


def trl_loss(image):
    """TRL's, of a chat of a letter for each token; the first tokens become the picture's where GPT-2 embeds them."""
    letters = "abcdefghijklm"
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({letter: number for number, letter in enumerate(letters)}, unk_token="a"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="a", eos_token="a")
    tokenizer.chat_template = (
        "{% for one in messages %}{% if one.role == 'assistant' %}{% generation %}{{ one.content }}{% endgeneration %}"
        "{% else %}{{ one.content + ' ' }}{% endif %}{% endfor %}")
    chats = []
    for row, whole in ((0, TEXT), (1, TEXT - PADDING)):
        numbers = [0] * image.shape[1] + tokens[row, :whole].tolist()
        user, assistant = numbers[:image.shape[1] + PROMPT], numbers[image.shape[1] + PROMPT:]
        chats.append([{"role": role, "content": " ".join(letters[number] for number in part)}
                      for role, part in (("user", user), ("assistant", assistant))])
    with tempfile.TemporaryDirectory() as directory:
        trainer = trl.SFTTrainer(
            copy.deepcopy(gpt2),
            trl.SFTConfig(directory, assistant_only_loss=True, use_cpu=True, bf16=False, report_to="none"),
            train_dataset=datasets.Dataset.from_dict({"messages": chats}), processing_class=tokenizer)
    batch = trainer.data_collator([trainer.train_dataset[row] for row in range(EXAMPLES)])
    assert torch.equal(batch["labels"][:, image.shape[1]:], labels)
    assert (batch["labels"][:, :image.shape[1]] == -100).all()
    trainer.model.eval().transformer.wte.register_forward_hook(
        lambda _, __, output: torch.cat([image, output[:, image.shape[1]:]], 1))
    return trainer.compute_loss(trainer.model, batch).item()


patches, shuffled, image, logits, counted, total, gradients = everything(vit, gpt2, projector)
exact = everything(*(copy.deepcopy(one).double() for one in (vit, gpt2)), projector.detach().double().requires_grad_())
for ours, double in zip([patches, image, logits, total, *gradients.values()],
                        [exact[0], exact[2], exact[3], exact[5], *exact[6].values()]):
    assert torch.allclose(ours.double(), double, rtol=1e-4, atol=1e-5), (ours - double).abs().max()

# The whole row and transformers' own shift of the labels give the same loss.
with torch.no_grad():
    both = torch.cat([image, gpt2.transformer.wte(tokens)], 1)
    padded = torch.cat([torch.full(image.shape[:2], -100), labels], 1)
    own = gpt2(inputs_embeds=both, labels=padded)
    assert torch.allclose(own.loss, total / counted) and torch.allclose(own.logits[:, image.shape[1]:-1], logits, atol=1e-5)
    generated, margins = [], []
    for row, length in enumerate(PROMPTS):
        text = tokens[row : row + 1, :length]
        for _ in range(NEW):
            last = answered(gpt2, image[row : row + 1], text)[0, -1]
            best = last.topk(2).values
            margins.append((best[0] - best[1]).item())
            text = torch.cat([text, last.argmax().view(1, 1)], 1)
        generated.append(text[0, length:].tolist())
    assert min(margins) > 0.01, "each best token is best by far"
    second = trl_loss(image)
    assert abs(second - (total / counted).item()) < 1e-5

numbers = lambda tensor: [float(f"{value:.8g}") for value in tensor.flatten().tolist()]
arrays = {"pictures": pictures, "tokens": tokens, "labels": labels[:, 1:], "projector": projector, "patches": patches,
          "shuffled": shuffled, "image_tokens": image, "logits": logits}
result = {
    "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__},
    "about": {
        "pictures": "input: bytes, row by row, RGB; a pixel is (byte / 255 - 0.5) / 0.5",
        "tokens": "the whole rows; the model's input is all but the last of each, after the 4 image tokens",
        "labels": "for the 9 input tokens of each row: the next token, or -100 where it does not count",
        "projector": "input: inputs by outputs",
        "patches": "the vision transformer's last state after its layer norm, without a class token",
        "shuffled": "patches after the pixel shuffle by 2",
        "logits": "at the 9 input tokens, positions 4 to 12 of the sequence",
        "loss": "loss_sum / counted; the gradients are of this",
        "generated": "greedily, after the 4 image tokens and the first prompt_lengths tokens of each row",
        "trl_loss": "the same loss by TRL's SFTTrainer with assistant_only_loss",
    },
    "shapes": {**{name: list(array.shape) for name, array in arrays.items()},
               "gradients": {name: list(array.shape) for name, array in gradients.items()},
               "generated": [EXAMPLES, NEW]},
    **{name: numbers(array) if array.is_floating_point() else array.flatten().tolist() for name, array in arrays.items()},
    "loss_sum": numbers(total)[0],
    "counted": counted,
    "loss": numbers(total / counted)[0],
    "trl_loss": float(f"{second:.8g}"),
    "gradients": {name: numbers(array) for name, array in gradients.items()},
    "prompt_lengths": PROMPTS,
    "generated": [token for row in generated for token in row],
}
(place / "vision_language.json").write_text(json.dumps(result) + "\n")
