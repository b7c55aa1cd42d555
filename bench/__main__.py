"""`python -m bench`: every comparison, one after another. Measure on an idle machine."""

import torch

from bench import single_layer

if __name__ == "__main__":
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    single_layer.run()
