// slm tokenize: standard input to token ids and back, to look at what a model really sees.
#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "model/model.h"
#include "open_model.h"
#include "read_input.h"
#include "store.h"
#include "text/text.h"
#include "verb.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

struct TokenizeOptions {
  std::string model;
  bool plain = false, decode = false, bos_eos = false, pieces = false;
};

// Ids as --json ({"ids": [...]}) and the plain output (numbers, spaces between) write them, or a JSON list.
Result<std::vector<text::TokenId>> ParseIds(const std::string& text, int n_vocab) {
  const auto refuse = [&](const std::string& word) {
    return Error(Code::kInvalidArgument, "'" + word + "' is not one of the " + std::to_string(n_vocab) + " token ids",
                 "pass what slm tokenize printed");
  };
  const size_t begin = text.find_first_not_of(" \t\r\n");
  ordered_json list = ordered_json::array();
  if (begin != std::string::npos && (text[begin] == '[' || text[begin] == '{')) {
    list = ordered_json::parse(text, nullptr, false);
    if (list.is_object() && list.contains("ids")) list = ordered_json(list["ids"]);
    if (!list.is_array()) return refuse(text.substr(begin, 40));
  } else {
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      int64_t id = -1;
      const auto [at, failed] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (failed != std::errc() || at != word.data() + word.size()) return refuse(word);
      list.push_back(id);
    }
  }
  std::vector<text::TokenId> ids;
  for (const ordered_json& id : list) {
    // A number past int64 is unsigned and large, so reading it as such first is safe.
    const bool fits = id.is_number_unsigned() ? id.get<uint64_t>() < static_cast<uint64_t>(n_vocab)
                                              : id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < n_vocab;
    if (!fits) return refuse(id.dump());
    ids.push_back(id.get<text::TokenId>());
  }
  return ids;
}

void PrintIds(Io& io, const text::Tokenizer& tokenizer, const std::vector<text::TokenId>& ids, bool pieces) {
  if (io.json) {
    ordered_json document = {{"ids", ids}};
    if (pieces) {
      ordered_json list = ordered_json::array();
      for (const text::TokenId id : ids) list.push_back(std::string(tokenizer.TokenBytes(id)));
      document["pieces"] = list;
    }
    return io.PrintJson(document);
  }
  std::string line;
  for (const text::TokenId id : ids) {
    if (!line.empty()) line += pieces ? '\n' : ' ';
    line += std::to_string(id);
    if (pieces)
      line += '\t' + ordered_json(std::string(tokenizer.TokenBytes(id))).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }
  io.Print(line + "\n");
}

Result<int> Tokenize(const TokenizeOptions& o, Io& io) {
  SLM_ASSIGN_OR_RETURN(const std::string path, ResolveModel(io, o.model));
  SLM_ASSIGN_OR_RETURN(const auto model, model::LoadModel(path, model::LoadWhat::kTokenizerOnly));
  auto built = BuildTokenizer(model->tokenizer);
  if (!built.ok()) return built.error().At(path);
  const text::Tokenizer tokenizer = built.Take();
  SLM_ASSIGN_OR_RETURN(const std::string input, ReadInput(io, "-"));
  if (o.decode) {
    SLM_ASSIGN_OR_RETURN(const auto ids, ParseIds(input, tokenizer.VocabSize()));
    const std::string text = tokenizer.Decode(ids);
    if (io.json) io.PrintJson({{"text", text}});
    else io.Print(text);
    return int{kExitOk};
  }
  const auto special = o.plain ? text::SpecialTokens::kPlain : text::SpecialTokens::kParse;
  const auto add = o.bos_eos ? text::AddBosEos::kYes : text::AddBosEos::kNo;
  SLM_ASSIGN_OR_RETURN(const auto ids, tokenizer.Encode(input, special, add));
  PrintIds(io, tokenizer, ids, o.pieces);
  return int{kExitOk};
}

}  // namespace

Body DeclareTokenize(CLI::App& app, Io& io) {
  auto o = std::make_shared<TokenizeOptions>();
  app.add_option("MODEL", o->model, "path of a GGUF file or Hugging Face folder, or a name in the store")->required();
  app.add_flag("--no-special", o->plain, "read spellings of control tokens as plain text");
  app.add_flag("--bos-eos", o->bos_eos, "add the begin and end tokens the model asks for");
  app.add_flag("--pieces", o->pieces, "print the bytes of every token too");
  app.add_flag("--decode", o->decode, "ids on standard input, text on standard output");
  app.footer("Example:\n  echo -n 'Hello world' | slm tokenize smollm2-135m-instruct --pieces");
  return [o, &io] { return Tokenize(*o, io); };
}

}  // namespace slm::cli
