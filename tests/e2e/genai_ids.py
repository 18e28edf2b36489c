"""What ONNX Runtime GenAI answers, greedily. Needs the package onnxruntime_genai when it is called."""


def greedy_ids(model, ids, n):
    """At most `n` tokens after `ids`, until the model ends."""
    import onnxruntime_genai as genai
    options = genai.GeneratorParams(model)
    options.set_search_options(max_length=len(ids) + n, do_sample=False)
    generator = genai.Generator(model, options)
    generator.append_tokens(ids)
    out = []
    while not generator.is_done():
        generator.generate_next_token()
        out.append(int(generator.get_next_tokens()[0]))
    return out
