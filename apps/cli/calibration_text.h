// The text that `slm quantize` calibrates on: a file of the user's or the built-in mix, as sequences of a model's tokens.
#pragma once
#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/model.h"
#include "quant/quant.h"
#include "verb.h"

namespace CLI {
class App;
}

namespace slm::cli {

struct CalibrationOptions {
  std::string file;       // empty: the built-in mix
  int sequences = 0;      // at most; 0: as the recipe has it
  int length = 0;         // tokens of a sequence, begin token included; 0: 512, at most the model's context
  uint64_t seed = 1;      // which parts of the text, and their order
  bool is_given = false;  // one of them on the command line
};

// Declares --calib, --calib-seqs, --calib-tokens and --seed.
void AddCalibration(CLI::App& app, CalibrationOptions& options);

// A text file, or a file that ends in .jsonl with an object a line: {"text": string}, or {"messages": [{"role", "content"}…]}, which the
// model's chat template turns into text. The tokens of all of it, one after another (lines of a .jsonl file shuffled), are cut into
// sequences, and `sequences` of them drawn; each starts with the begin token if the model's tokenizer puts one before a text, and the
// first, third, … if it has one that it does not put there. Errors: kNotFound, kCorrupt (file and line named), kInvalidArgument
// (too short), kLimit (sequences beyond the model's context), and what the tokenizer says.
Result<quant::CalibrationText> ReadCalibration(const Io& io, const model::Model& m, const CalibrationOptions& options);

// The same for text in memory; `lines`: an object a line.
enum class CalibrationForm : unsigned char { kText, kLines };
Result<quant::CalibrationText> CalibrationFrom(std::string_view text, CalibrationForm form, const std::string& name, const model::Model& m,
                                               const CalibrationOptions& options);

// Puts `token` in front, in as many tokens as before; nothing where the sequence begins with it.
void BeginWith(int32_t token, std::vector<int32_t>* sequence);

// The mix that comes with the program: lines. See calibration_mix.md.
std::string_view CalibrationMix();

}  // namespace slm::cli
