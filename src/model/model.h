// The door of `model`: LoadModel opens a GGUF file (single, sharded, or a package) or a Hugging Face folder and hands out one record:
// config, tensors by role, raw tokenizer material, metadata. Weights stay memory-mapped; nothing is copied or converted here.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/mmap.h"
#include "base/result.h"
#include "model/config.h"

namespace slm::model {

struct GroupedMatrix;  // grouped/grouped.h

// A tensor of the file. `dims` outermost first: a linear weight is [N (out), K (in)] row-major, as in HF; GGUF's reversed
// order is already turned round. `data` lies in a map owned by the Model.
struct Tensor {
  std::string name;           // as the file spells it
  DType dtype = DType::kF32;  // kCount when foreign_type is set
  std::vector<int64_t> dims;
  std::span<const std::byte> data;
  // Name of a storage type outside the DType table ("IQ2_XXS", "F8_E4M3"), else empty. Such a tensor can be listed but not
  // read, and has no role, unless it is `grouped`.
  std::string_view foreign_type;
  // A matrix of codes, scales and zero points in several tensors of the file (AWQ, GPTQ, compressed-tensors); `data` is empty then.
  std::shared_ptr<const GroupedMatrix> grouped;
  // Of a package: bytes of the tensor in the execution layout, where its values are (Model::packed); `data` is empty then.
  uint64_t packed_bytes = 0;
  int64_t n_values() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
  uint64_t stored_bytes() const;  // that the file spends on it
};

// What a tensor is for. Per-layer roles come with a layer index.
enum class Role : uint8_t {
  kEmbedding,
  kFinalNorm,
  kHead,
  kRopeFreqs,
  kRopeFactorsLong,
  kRopeFactorsShort,
  kAttnNorm,
  kQ,
  kK,
  kV,
  kQkv,
  kO,
  kQBias,
  kKBias,
  kVBias,
  kQkvBias,
  kOBias,
  kQNorm,
  kKNorm,
  kAttnPostNorm,
  kFfnNorm,
  kGate,
  kUp,
  kGateUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,
  kFfnPostNorm,
  kCount,
};
// True for the matrices of a layer that its activations go through: what quantizers round.
bool IsLayerMatrix(Role role);

// Tokenizer material as found in the file, for the text room (which must not know this one): views into the model's maps.
struct TokenizerSource {
  std::string kind;  // "gguf" or "hf" or "" (none)
  // gguf: the embedded vocabulary
  std::string ggml_model, ggml_pre;  // tokenizer.ggml.model, tokenizer.ggml.pre
  std::vector<std::string_view> tokens, merges;
  std::vector<float> scores;         // empty or one per token
  std::vector<int32_t> token_types;  // empty or one per token
  int bos = -1, eos = -1, unk = -1, pad = -1, eot = -1, eom = -1;
  int add_bos = -1, add_eos = -1, add_space_prefix = -1, remove_extra_whitespaces = -1;  // -1: not stated
  // hf: whole files, empty when absent
  std::string tokenizer_json, tokenizer_config_json, special_tokens_map_json, vocab_json, merges_txt, spm_model, added_tokens_json;
  std::string chat_template;  // Jinja source, from the GGUF, tokenizer_config.json or chat_template.jinja
  std::vector<std::pair<std::string, std::string>> named_templates;  // further templates ("tool_use", …)
};

// A matrix of a package in the execution layout of kernels/packed: rows of tensors, stacked in segments that each begin on a
// panel. This room checks that the rows exist; what `kind` means and how many bytes it takes is the kernels' business.
struct PackedSegment {
  std::string tensor;
  int64_t row_begin = 0, row_end = 0;
};
struct PackedWeights {
  int64_t kind = 0;
  int64_t k = 0;  // width of every row
  std::vector<PackedSegment> segments;
  std::span<const std::byte> data;
};

struct Model {
  std::string path;
  std::string format;  // "gguf", "hf", "package" or "safetensors" (a bare file, kContainer only)
  ModelConfig config;
  std::vector<Tensor> tensors;        // in file order
  std::vector<PackedWeights> packed;  // of a package, in the order in which they are read
  int64_t packed_layout = 0;          // of a package: kernels::kPackedLayoutId of its writer
  TokenizerSource tokenizer;
  // Scalars and short strings of the container, printed by inspect: (key, value as text).
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<MappedFile> files;
  uint64_t file_bytes = 0;  // sum over all files of weights

  // Tensor with a role, or nullptr. `layer` is ignored for roles that have none.
  const Tensor* Find(Role role, int layer = 0) const;
  const Tensor* FindName(std::string_view name) const;
  // Frees the lists and files that a tokenizer is built from; the chat templates stay. Not while another thread reads the model.
  void ReleaseVocabulary();
  // Lets the pages of a tensor leave this process's RSS after it was packed.
  void DropPages(const Tensor& t) const;
  void DropPages(std::span<const std::byte> part) const;

  std::vector<int32_t> role_index;  // [(layer + 1) * kCount + role] -> tensor index or -1; layer -1 first. Set by the loader
};

enum class LoadWhat : uint8_t {
  kAll,            // everything that is needed to run
  kTokenizerOnly,  // config and tensors may be absent (vocab-only files, a folder with only tokenizer files)
  kContainer,      // tensors, metadata and raw tokenizer material; config left at its defaults, tensors without roles
};

// Opens `path`. Errors: kNotFound, kCorrupt (file and place named), kUnsupported (architecture: the known ones are listed;
// big-endian GGUF; tensor type), kIo. Thread-safe; the result may be shared between threads as a const Model.
Result<std::shared_ptr<Model>> LoadModel(const std::string& path, LoadWhat what = LoadWhat::kAll);

// One block of a block-quantized type taken apart, nothing rounded: value i = scale * q[i], or scale * q[i] + min, in f32.
// With groups: scale = d * scales[i / group] and value i = scale * q[i] - min * mins[i / group], the last product only if there
// are minimums (the K-quants).
enum class BlockMin : uint8_t { kNone, kOne, kGroups };
struct BlockForm {
  int group = 0;  // values that share an integer scale; 0: all share d
  BlockMin min = BlockMin::kNone;
};
struct BlockCodes {
  int8_t q[256];  // less the type's zero point, or the table's value (IQ4, MXFP4)
  float d = 0, min = 0;
  int8_t scales[16];
  uint8_t mins[16];
};
// Form of `dtype`, the default for types that are not block-quantized; the block at `block` (block_bytes of Info(dtype)) of a
// block-quantized type. Only what the form names is written. Pure, thread-safe.
BlockForm FormOf(DType dtype);
void ReadBlock(DType dtype, const std::byte* block, BlockCodes& out);

// Dequantises values [begin, end) of a tensor (flat, row-major; multiples of the dtype's block) to f32.
// out: [end - begin]. Bit-equal to the numpy reference of the `gguf` package. Pure, thread-safe.
void Dequantize(DType dtype, std::span<const std::byte> data, int64_t begin, int64_t end, float* out);

// Rows [begin, end) of a tensor that can be read, as f32 [rows, last dimension]; also of a grouped one. Rows begin on blocks.
// Thread-safe.
void ReadRows(const Tensor& t, int64_t begin, int64_t end, float* out);

// Whole tensor as f32 [n_values]; for norms, biases and dumps.
std::vector<float> DequantizeAll(const Tensor& t);

// Name of a tensor's storage type, foreign or not.
std::string_view TypeName(const Tensor& t);

// Names of the architectures that LoadModel knows, in table order.
std::vector<std::string> KnownArchitectures();

}  // namespace slm::model
