// An imported decoder: the graph with one row of each rotation table, and where the rest of the rows come from.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "importer/calls.h"
#include "importer/emit.h"
#include "onnx/genai/genai.h"
#include "onnx/onnx.h"

namespace slm::importer {

struct Decoder {
  std::shared_ptr<const onnx::Model> file;  // flattened; its nodes compute rotation tables
  graph::Graph graph;
  std::vector<RopeTable> tables;
  Calls calls;
  std::map<std::string, ValuePtr> values;
};

// What the graph's inputs and outputs are called.
using Naming = onnx::GenAiNames;  // plain exports call them so, too

// The number that stands for %d in `name`; -1: another name.
int NumberIn(const std::string& name, const std::string& pattern);

struct Facts {
  int d_model = 0, vocab_size = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, d_ff = 0;
  int rotary_dim = 0;
  bool interleaved = false, tied_head = false;
  int window = 0;
  std::vector<uint8_t> is_local;
  int64_t most_positions = 0;  // rows of the tables in the file, or tokens up to which an If chooses the same branch; 0: any
};

struct Interpreted {
  Decoder decoder;
  Weights weights;
  Facts facts;
};

// What stands beside the graph; heads and width of the cache count where the graph leaves them open, 0: not stated.
struct Stated {
  Naming naming;
  int64_t longest = 0;  // the context
  int64_t n_kv_heads = 0, head_dim = 0;
  CallForm form = CallForm::kAnyLength;
};

// The whole graph of `file`. Errors: as Import, without the file.
Result<Interpreted> InterpretDecoder(std::shared_ptr<const onnx::Model> file, const Stated& stated);

}  // namespace slm::importer
