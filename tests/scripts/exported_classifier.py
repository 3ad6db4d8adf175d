import json, sys
sys.path.insert(0, "model")
import model
lines = [json.loads(line) for line in open(sys.argv[1])]
found = model.predict([line["file"] for line in lines], "model")
print(max(abs(probability - line["probability"]) if name == line["class"] else 1.0 for line, (name, probability) in zip(lines, found)))
