"""The web UI: Gradio Blocks for frame, tabs and settings; evidence, library and history by our own modules in `static/`."""
