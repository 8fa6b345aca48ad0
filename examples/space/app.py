"""Fast-R2D2 in the browser: ``python app.py``. It needs no network."""

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # before gradio is imported

import gradio as gr  # noqa: E402

import views  # noqa: E402

EXAMPLE = "The old man bought a new car. Dogs that bark don't bite."
THEME = gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["monospace"])  # the reader's own fonts
CSS = "figcaption {font-weight: 600} svg {display: block; margin-top: .5rem} footer {display: none !important}"


def read(text: str) -> tuple:
    """The sentences of a text: the state, and the list to choose from."""
    sentences = views.sentences_of(text)
    choices = [(" ".join(words), number) for number, (words, _) in enumerate(sentences)]
    return sentences, gr.Radio(choices, value=0 if choices else None, visible=len(choices) > 1)


def show(sentences: list[views.Sentence], number: int | None, method: str, form: str) -> tuple:
    """Everything about the chosen sentence."""
    if not sentences or number is None:
        return "<p>Type a text.</p>", "", gr.Dropdown([], value=None), [], ""
    chosen = sentences[number]
    choices = list(dict(views.constituents(chosen)))
    nearest = views.nearest_view(chosen, choices[0])
    copied = views.copy_view(chosen, method, form)
    return views.trees_view(chosen), views.chart_view(chosen), gr.Dropdown(choices, value=choices[0]), nearest, copied


def search(sentences: list[views.Sentence], number: int | None, chosen: str | None) -> list[list[str]]:
    return views.nearest_view(sentences[number], chosen) if sentences and number is not None and chosen else []


def copy(sentences: list[views.Sentence], number: int | None, method: str, form: str) -> str:
    return views.copy_view(sentences[number], method, form) if sentences and number is not None else ""


with gr.Blocks(title="Fast-R2D2", analytics_enabled=False) as app:
    gr.Markdown(
        "# Fast-R2D2\nTrees and vectors from raw text. Labelled trees have told the parser how sure to be, and nothing "
        "else."
    )
    text = gr.Textbox(EXAMPLE, label="Text", lines=2, max_length=5000, elem_id="text")
    button = gr.Button("Parse", variant="primary", elem_id="parse")
    state, sentence = gr.State([]), gr.Radio([], label="Sentence", elem_id="sentence")
    with gr.Tab("Trees"):
        trees = gr.HTML(elem_id="trees")
    with gr.Tab("Chart"):
        chart = gr.HTML(elem_id="chart")
    with gr.Tab("Nearest constituents"):
        chosen = gr.Dropdown([], label="Constituent", elem_id="constituent")
        nearest = gr.Dataframe(
            headers=["cosine", "constituent", "sentence"], column_widths=["15%", "40%", "45%"], interactive=False,
            wrap=True, elem_id="nearest",
        )  # fmt: skip
    with gr.Tab("Copy"):
        method = gr.Radio([(name, method) for method, name in views.METHODS.items()], value="parser", label="Tree")
        form = gr.Radio(views.FORMATS, value="brackets", label="Format", elem_id="format")
        copied = gr.Textbox(label="Text", lines=3, buttons=["copy"], interactive=False, elem_id="copied")

    shown = dict(fn=show, inputs=[state, sentence, method, form], outputs=[trees, chart, chosen, nearest, copied])
    gr.on([button.click, text.submit, app.load], read, text, [state, sentence]).then(**shown)
    sentence.input(**shown)
    chosen.input(search, [state, sentence, chosen], nearest)
    gr.on([method.change, form.change], copy, [state, sentence, method, form], copied)

if __name__ == "__main__":
    app.launch(theme=THEME, css=CSS)
