"""Logits of a checkpoint by transformers in float32: argv is the folder, the file for them, and the token ids."""
import sys

try:
    import torch
    import transformers
except ImportError as error:
    print(f"not available: {error}")
    sys.exit(0)

folder, output, *ids = sys.argv[1:]
model = transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, local_files_only=True)
with torch.no_grad():
    logits = model(torch.tensor([[int(number) for number in ids]])).logits[0]
logits.contiguous().numpy().tofile(output)
print(f"transformers {transformers.__version__}, torch {torch.__version__}")
