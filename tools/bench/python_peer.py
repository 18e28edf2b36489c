"""One measurement of ONNX Runtime GenAI or OpenVINO GenAI, run by the Python that has them; prints JSON lines.

  python_peer.py ort|openvino FOLDER --threads N [--first-only]
  python_peer.py convert MODEL.gguf      writes OpenVINO's own form beside the file

The imports belong to the time from start to first token and so stand inside the functions. Prompts are random ids, another one
for each test, so that no cache of prefixes helps; tokens are chosen greedily and never end a run.
"""
import argparse
import json
import pathlib
import random
import time

from figures import DEPTH, PROMPT, SHORT_PROMPT, STEPS

LOWEST_ID, IDS = 3, 30000  # ids that any vocabulary of these models has


def prompt_of(n, seed):
    numbers = random.Random(seed)
    return [numbers.randrange(LOWEST_ID, IDS) for _ in range(n)]


def open_ort(folder, threads):
    """Returns (version, time_of): time_of(ids, steps) -> (seconds to the first token, seconds of the steps after it)."""
    import onnxruntime_genai as ort
    config = ort.Config(str(folder))
    session = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
    model = ort.Model(config)

    def time_of(ids, steps):
        params = ort.GeneratorParams(model)
        length = len(ids) + steps + 2
        params.set_search_options(do_sample=False, batch_size=1, min_length=length, max_length=length)
        generator = ort.Generator(model, params)
        start = time.perf_counter()
        generator.append_tokens(ids)
        generator.generate_next_token()
        first = time.perf_counter()
        for _ in range(steps):
            generator.generate_next_token()
        return first - start, time.perf_counter() - first
    return getattr(ort, "__version__", "?"), time_of


def open_openvino(folder, threads):
    import numpy
    import openvino
    import openvino_genai
    pipe = openvino_genai.LLMPipeline(str(folder), "CPU", INFERENCE_NUM_THREADS=threads, PERFORMANCE_HINT="LATENCY")

    def time_of(ids, steps):
        row = numpy.array([ids], dtype=numpy.int64)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(row), openvino.Tensor(numpy.ones_like(row)))
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample, config.apply_chat_template = steps + 1, True, False, False
        times = pipe.generate(inputs, config).perf_metrics
        return times.get_ttft().mean / 1e3, times.get_tpot().mean / 1e3 * steps if steps else 0.0
    return openvino_genai.__version__, time_of


def convert(gguf):
    import openvino_genai
    openvino_genai.LLMPipeline(str(gguf), "CPU", enable_save_ov_model=True)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("kind", choices=("ort", "openvino", "convert"))
    args.add_argument("path", type=pathlib.Path)
    args.add_argument("--threads", type=int, default=1)
    args.add_argument("--first-only", action="store_true")
    args = args.parse_args()
    if args.kind == "convert":
        return convert(args.path)
    version, time_of = (open_ort if args.kind == "ort" else open_openvino)(args.path, args.threads)
    time_of(prompt_of(SHORT_PROMPT, 0), 0)  # with --first-only the measurement, else the warm-up
    if args.first_only:
        return None
    time_of(prompt_of(PROMPT, 1), 2)
    print(json.dumps({"version": version, "pp512": PROMPT / time_of(prompt_of(PROMPT, 2), 0)[0]}))
    print(json.dumps({"ttft32_ms": 1e3 * time_of(prompt_of(SHORT_PROMPT, 3), 0)[0]}))
    print(json.dumps({"tg128": STEPS / time_of(prompt_of(1, 4), STEPS)[1]}))
    print(json.dumps({"tg128_d1024": STEPS / time_of(prompt_of(DEPTH, 5), STEPS)[1]}), flush=True)
    return None


if __name__ == "__main__":
    main()
