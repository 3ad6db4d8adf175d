

def preprocess(image, config):
    """Input `[3, side, side]` for a Pillow image."""
    from PIL import Image, ImageOps

    side = config["image_size"]
    image = ImageOps.exif_transpose(image).convert("RGB")
    width, height = (max(int(length * side / max(image.size) + 0.5), 1) for length in image.size)
    square = Image.new("RGB", (side, side), (config["padding"],) * 3)
    place = (side - width) // 2, (side - height) // 2
    square.paste(image.resize((width, height), Image.Resampling.BILINEAR), place)
    mean, deviation = (torch.tensor(config[name]).view(-1, 1, 1) for name in ("mean", "deviation"))
    pixels = torch.frombuffer(bytearray(square.tobytes()), dtype=torch.uint8).reshape(side, side, 3).permute(2, 0, 1)
    return (pixels - mean) / deviation


@torch.no_grad()
def predict(files, directory="."):
    """Yields the name and the probability of the most probable class of each image file; a number without names."""
    from PIL import Image

    network, config = load(directory)
    for file in files:
        with Image.open(file) as image:
            probabilities = network(preprocess(image, config)[None]).softmax(1)[0]
        best = probabilities.argmax().item()
        yield config["classes"][best] if "classes" in config else best, probabilities[best].item()


if __name__ == "__main__":
    files = sys.argv[1:]
    for file, (name, probability) in zip(files, predict(files, Path(__file__).parent)):
        print(f"{file}: {name} {probability:.2f}")
