import json, sys
sys.path.insert(0, "model")
import torch
import model
network, config = model.load("model")
largest = 0.0
for line in open(sys.argv[1]):
    answer = json.loads(line)
    data = open(answer["file"] + ".raw", "rb").read()
    side = config["image_size"]
    pixels = torch.tensor(list(data), dtype=torch.float32).view(side, side, 3)
    image = ((pixels - config["mean"]) / config["deviation"]).permute(2, 0, 1)[None]
    with torch.no_grad():
        found = torch.softmax(network(image)[0].double(), 0).sort(descending=True).values
    expected = [one["probability"] for one in answer["top"]]
    largest = max([largest, *(abs(float(a) - b) for a, b in zip(found, expected))])
print(largest)
