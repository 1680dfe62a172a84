"""The web UI: Gradio Blocks for frame, tabs and settings; the other views by our own modules in `static/`."""
