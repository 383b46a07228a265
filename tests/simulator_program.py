"""A simulator as a program: mu --sigma=SIGMA records seed; or JSON on standard input; output as asked by --out=FORM."""

import json
import random
import sys
import time

words = [word for word in sys.argv[1:] if not word.startswith("--") or "=" not in word]
options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
if words:
    mu, sigma, records, seed = float(words[0]), float(options["sigma"]), int(words[1]), int(words[2])
else:
    told = json.load(sys.stdin)
    mu, sigma, records, seed = told["theta"]["mu"], told["theta"]["sigma"], told["records"], told["seed"]
stream = random.Random(seed)
values = [stream.gauss(mu, sigma) for _ in range(records)]
trouble = options.get("trouble")
if trouble == "hang":
    time.sleep(600)
elif trouble == "code":
    sys.exit("the solver did not converge")
elif trouble == "short":
    values = values[1:]
elif trouble == "words":
    values = ["a lot"] * records
elif trouble == "nan":
    values[0] = float("nan")
form = options.get("out", "csv")
if form == "csv":
    print("\n".join(map(str, values)))
elif form == "named":
    print("y,double", *(f"{v},{2 * v}" for v in values), sep="\n")
elif form == "json":
    print(json.dumps([[v, 2 * v] for v in values]))
elif form == "npy":
    import numpy as np

    np.save(sys.stdout.buffer, np.array(values))
