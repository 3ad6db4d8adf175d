import os, sys, time
print(sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(1).columns, flush=True)
begun = time.time()
while os.get_terminal_size(1).columns == 77 and time.time() < begun + 60:
    time.sleep(0.01)
print("now", os.get_terminal_size(2).columns, flush=True)
print("  3%|#   | 3/9 [00:01<00:32, 9it/s, loss=0.5]", flush=True)
