"""Sessions on Qualcomm's compiler and its simulator of the HTP, for the tests of exported folders. Nothing runs on a device."""
import collections

import numpy as np


class Htp:
    """One SoC a process: the provider keeps the model number that it was given first."""

    def __init__(self, soc=60):
        import onnxruntime
        import onnxruntime_qnn
        self.ort, self.soc = onnxruntime, soc
        self.ort.register_execution_provider_library("QNNExecutionProvider", onnxruntime_qnn.get_library_path())
        self.devices = [d for d in self.ort.get_ep_devices() if d.ep_name == "QNNExecutionProvider"]
        self.placed = []  # by session: nodes by provider

    def session(self, path, context=None):
        """`context`: path of a context binary's graph to write."""
        options = self.ort.SessionOptions()
        options.log_severity_level = 3
        config = {"session.record_ep_graph_assignment_info": "1", "session.disable_cpu_ep_fallback": "1"}
        if context:
            config |= {"ep.context_enable": "1", "ep.context_file_path": str(context), "ep.context_embed_mode": "0"}
        for key, value in config.items():
            options.add_session_config_entry(key, value)
        options.add_provider_for_devices(self.devices, {"backend_type": "htp", "soc_model": str(self.soc),
                                                        "offload_graph_io_quantization": "0",
                                                        "enable_block_quant_weight_optimization": "1"})
        session = self.ort.InferenceSession(str(path), options)
        count = collections.Counter()
        for part in session.get_provider_graph_assignment_info():
            count[part.ep_name] += len(part.get_nodes())
        self.placed.append(dict(count))
        return session


def relative_rms(got, want):
    return float(np.sqrt(((got - want) ** 2).mean() / (want ** 2).mean()))
