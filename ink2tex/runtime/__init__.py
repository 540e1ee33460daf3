"""Recognising: any input to a `Result`, over ONNX Runtime (or torch, to compare)."""
