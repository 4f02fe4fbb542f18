"""Chat templates: where they come from, what they may do, and which of them cannot be trained
with."""

import json
import os
import shutil
import sys
import unittest

from testbed import PROGRAM, PrepareTest, write_json

CHATML = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
ROW = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "cat"}]}
# As Qwen3's: an answer has a block of thoughts only while nothing follows it.
FORGETS = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' }}"
    "{% if m.role == 'assistant' and loop.last %}{{ '<think></think>' }}{% endif %}"
    "{{ m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


class ChatTest(PrepareTest):
    def use(self, template):
        path = self.path("model", "tokenizer_config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        write_json(self.model, "tokenizer_config.json", {**config, "chat_template": template})

    def texts(self, *options):
        """[(text, whether it is trained)] of the only row, as a preview shows it."""
        run = self.prepare("--preview-rows", "1", *options, max_seq_length=512)
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(self.path("out"), encoding="utf-8") as file:
            row = json.load(file)["rows"][0]
        os.remove(self.path("out"))
        return [(s["text"], bool(s["weight"])) for s in row["segments"]]


class SourceTest(ChatTest):
    def setUp(self):
        super().setUp()
        self.write_rows(ROW)

    def source(self, *options):
        run = self.prepare("--preview-rows", "1", *options)
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(self.path("out"), encoding="utf-8") as file:
            return json.load(file)["summary"]["chat_template"]

    def test_tokenizer_config(self):
        self.use(CHATML)
        self.assertEqual(self.source(), "tokenizer_config.json")
        self.assertEqual(self.texts(), [("<|user|>a</s><|assistant|>", False), ("cat</s>", True)])

    # transformers: a file has precedence.
    def test_file(self):
        self.use("{{ raise_exception('not this one') }}")
        with open(self.path("model", "chat_template.jinja"), "w", encoding="utf-8") as file:
            file.write(CHATML)
        self.assertEqual(self.source(), "chat_template.jinja")

    # One for rows with tools, as transformers picks it, and one that the job names.
    def test_named_templates(self):
        names = ("default", "tool_use", "short")
        self.use([{"name": name, "template": "{{ '" + name + "' }}" + CHATML} for name in names])
        self.assertEqual(self.texts()[0][0], "default<|user|>a</s><|assistant|>")
        self.assertEqual(self.texts("--chat-template", "short")[0][0][:5], "short")
        self.write_rows({**ROW, "tools": [{"name": "f"}]})
        self.assertEqual(self.texts()[0][0][:8], "tool_use")
        self.assertEqual(self.error("--chat-template", "long")["field"], "chat_template")

    def test_of_the_job(self):
        self.assertEqual(self.source("--chat-template", CHATML), "of the job")

    # A template that the model does not have goes with the prepared dataset, as it is.
    def test_goes_on(self):
        self.prepared("--chat-template", CHATML)
        with open(self.path("out", "chat_template.jinja"), encoding="utf-8") as file:
            self.assertEqual(file.read(), CHATML)
        self.use(CHATML)
        self.assertEqual(self.prepare("--output", self.path("own")).returncode, 0)
        self.assertNotIn("chat_template.jinja", os.listdir(self.path("own")))

    def test_none(self):
        error = self.error()
        self.assertEqual(error["reason"], "NO_CHAT_TEMPLATE")
        self.assertIn("give chat_template", error["message"])

    # Snug's own for Alpaca ends answers with the model's end token, even if config.json alone
    # names one.
    def test_own_template_knows_the_end_token(self):
        write_json(self.model, "tokenizer_config.json", {})
        self.write_rows({"instruction": "a", "output": "cat"})
        self.assertEqual(self.texts()[-1], ("cat</s>", True))

    def test_variables_of_a_row(self):
        self.use("{{ mood }}" + CHATML)
        self.write_rows({**ROW, "chat_template_kwargs": {"mood": "gay"}})
        self.assertEqual(self.texts()[0][0], "gay<|user|>a</s><|assistant|>")


class SandboxTest(ChatTest):
    """A template is a stranger's program."""

    def refused(self, template, words):
        self.write_rows(ROW)
        error = self.error("--chat-template", template)
        self.assertIn(words, error["message"])
        return error

    def test_python_is_out_of_reach(self):
        for expression in ("''.__class__.__mro__", "messages.append(1)", "namespace(_x=1)"):
            error = self.refused("{{ " + expression + ".x }}", "refuses this row: ")
            self.assertEqual(error["line"], 1)

    def test_endless_work(self):
        self.refused("{% for i in range(10 ** 9) %}{% endfor %}", "Range too big")

    def test_broken(self):
        error = self.refused("{% for %}", "is not Jinja")
        self.assertEqual((error["reason"], error["field"]), ("BAD_CHAT_TEMPLATE", "chat_template"))

    def test_its_own_words(self):
        self.refused("{{ raise_exception('roles must alternate') }}", "roles must alternate")

    def test_date_is_told(self):
        self.write_rows(ROW)
        _, summary = self.prepared("--chat-template", "{{ strftime_now('%Y') }}" + CHATML)
        self.assertIn("writes today's date into rows", " ".join(summary["warnings"]))


class MaskTest(ChatTest):
    TURNS = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "cat"},
        {"role": "user", "content": "and"},
        {"role": "assistant", "content": "dog"},
    ]

    # Written otherwise when more follows, but the answer and its end of turn are found in context.
    def test_answers_that_change_when_more_follows(self):
        self.use(FORGETS)
        self.write_rows({"messages": self.TURNS})
        self.assertEqual(
            self.texts(),
            [
                ("<|user|>a</s><|assistant|>", False),
                ("cat</s>", True),
                ("<|user|>and</s><|assistant|>", False),
                ("<think></think>dog</s>", True),
            ],
        )
        self.assertEqual(self.texts("--mask-history", "1")[1][0], "<think></think>dog</s>")

    # As Phi-3's: the conversation's end is written behind the last message alone.
    def test_end_of_the_conversation(self):
        chat = CHATML.replace("eos_token", "'<s>'")
        self.use(chat.replace("{% endif %}", "{% else %}{{ eos_token }}{% endif %}"))
        self.write_rows({"messages": self.TURNS})
        trained = [text for text, trained in self.texts() if trained]
        self.assertEqual(trained, ["cat<s>", "dog<s></s>"])

    # What stands before an answer depends on what follows it: nobody can say what is trained.
    def test_prefixes_that_do_not_hold(self):
        self.use("{{ messages | length }} messages: " + CHATML)
        self.write_rows({"messages": self.TURNS})
        error = self.error()
        self.assertEqual((error["reason"], error["line"]), ("BAD_DATASET", 1))
        words = "writes what stands before message 1 otherwise when more follows ('1 messages: "
        self.assertIn(words, error["message"])

    # The answer is written twice, and otherwise as the last message.
    def test_answers_that_are_written_twice(self):
        self.use(FORGETS.replace("m.content", "m.content + m.content"))
        self.write_rows({"messages": self.TURNS})
        message = self.error()["message"]
        self.assertIn("the messages up to message 1 otherwise", message)
        self.assertIn("set mask_history", message)
        self.assertEqual(len(self.texts("--mask-history", "1")), 2)

    # The generation prompt opens what a finished turn does not have.
    def test_generation_prompt_that_is_no_prefix(self):
        self.use(CHATML.replace("'<|assistant|>'", "'<|assistant|><think>'"))
        self.write_rows(ROW)
        message = self.error()["message"]
        self.assertIn("writes what stands before message 1 otherwise", message)
        self.assertNotIn("mask_history", message)  # The last answer alone cannot be told either.

    # Nothing stands before it, and the template asks for the first of the messages.
    def test_assistant_begins(self):
        first = "{% if messages[0]['role'] == 'system' %}s{% endif %}"
        self.write_rows({"messages": self.TURNS[1:]})
        for template in (CHATML, first + CHATML):
            self.assertEqual(
                self.texts("--chat-template", template),
                [
                    ("<|assistant|>", False),
                    ("cat</s>", True),
                    ("<|user|>and</s><|assistant|>", False),
                    ("dog</s>", True),
                ],
            )

    # A conversation of which little is kept costs little: 1 rendering for each answer in reach.
    def test_turns_that_are_cut_off_are_not_searched(self):
        sys.path.insert(0, os.path.dirname(PROGRAM))
        from answers import Conversation
        from chat_template import ChatTemplate
        from files.record import Record
        from rows import Chat

        template = ChatTemplate(CHATML, "here", {"eos_token": "</s>"})
        turns, calls = self.TURNS * 100, []
        row = Chat(Record("f", 1, {}), (), turns, [0.0, 1.0] * 200)
        spans = Conversation(template, row, {}).spans()
        render, template.render = template.render, lambda *of: calls.append(1) or render(*of)
        near, far = spans(50), spans(10**6)
        self.assertEqual((len(near), len(far)), (2, 200))
        self.assertEqual(near[:1], far[:1])
        self.assertEqual(len(calls), 3 + 399)  # The last one ends where the whole does.

    def test_weights_that_cannot_be_matched_to_marks(self):
        marked = "{% generation %}x{% endgeneration %}{% generation %}y{% endgeneration %}z"
        turns = [dict(turn) for turn in self.TURNS]
        self.write_rows({"messages": turns})
        self.assertEqual(self.texts("--chat-template", marked * 2)[3], ("xy", True))
        turns[1]["weight"] = 0
        self.write_rows({"messages": turns})
        self.assertIn("weights differ", self.error("--chat-template", marked * 2)["message"])

    # {"prompt", "completion"} of messages: as a conversation whose beginning is not trained.
    def test_completion_of_messages(self):
        self.use(CHATML)
        turns = [dict(turn) for turn in self.TURNS]

        def trained(*options):
            self.write_rows({"prompt": turns[:1], "completion": turns[1:]})
            return [text for text, is_trained in self.texts(*options) if is_trained]

        self.assertEqual(trained(), ["cat</s>", "dog</s>"])
        self.assertEqual(trained("--mask-history", "1"), ["dog</s>"])
        behind = "cat</s><|user|>and</s><|assistant|>dog</s>"
        self.assertEqual(trained("--assistant-only-loss", "0"), [behind])
        turns[3]["weight"] = 0
        self.assertEqual(trained(), ["cat</s>"])

    # As Gemma 4's: the generation prompt ends in what a finished turn does not have. A completion
    # begins where they part.
    def test_generation_prompt_that_a_completion_does_not_keep(self):
        self.use(CHATML.replace("'<|assistant|>'", "'<|assistant|><think></think>'"))
        self.write_rows({"prompt": self.TURNS[:1], "completion": self.TURNS[1:2]})
        for options in ((), ("--assistant-only-loss", "0")):
            expected = [("<|user|>a</s><|assistant|>", False), ("cat</s>", True)]
            self.assertEqual(self.texts(*options), expected)

    # But where the prompt's own words are others, they would be trained.
    def test_prompt_that_does_not_hold(self):
        self.use("{{ messages | length }} messages: " + CHATML)
        self.write_rows({"prompt": self.TURNS[:1], "completion": self.TURNS[1:2]})
        for options in ((), ("--assistant-only-loss", "0")):
            message = self.error(*options)["message"]
            self.assertIn("writes the prompt otherwise when more follows ('1 messages", message)

    # An answer before the last is history, whatever the last one's weight.
    def test_last_answer_that_is_not_trained(self):
        self.use(CHATML)
        silent = [*self.TURNS[:3], {**self.TURNS[3], "weight": 0}]
        self.write_rows({"messages": self.TURNS}, {"messages": silent})
        _, summary = self.prepared("--mask-history", "1")
        self.assertEqual((summary["rows"], summary["untrained_rows"]), (1, 1))

    # Calls and thoughts that a template knows nothing of are gone, and that is said.
    def test_what_is_not_printed_is_told(self):
        call = {"type": "function", "function": {"name": "cat", "arguments": "{}"}}
        answer = {"role": "assistant", "content": "", "tool_calls": [call], "reasoning": "hm"}
        row = {"messages": [self.TURNS[0], answer], "tools": [call]}
        self.write_rows(row, ROW)
        options = ("--preview-rows", "1", "--chat-template")

        def lost(template):
            self.assertEqual(self.prepare(*options, template).returncode, 0)
            with open(self.path("out"), encoding="utf-8") as file:
                warnings = json.load(file)["summary"]["warnings"]
            return [words.split()[3] for words in warnings if "does not print" in words]

        self.assertEqual(lost(CHATML), ["reasoning_content", "tool_calls", "tools"])
        prints = "{{ tools }}" + CHATML.replace("m.content", "(m.reasoning_content or '')")
        self.assertEqual(lost(prints), ["tool_calls"])
        self.assertEqual(lost(prints.replace("+ eos", "+ (m.tool_calls | string) + eos")), [])

    # Many an older template knows no system.
    def test_system_that_is_not_printed_is_told(self):
        system = {"role": "system", "content": " be brief "}
        self.write_rows({"messages": [system, *self.TURNS]}, ROW)
        for loop, told in (("messages", 0), ("messages if m.role != 'system'", 1)):
            shutil.rmtree(self.path("out"), ignore_errors=True)
            template = CHATML.replace("messages", loop)
            _, summary = self.prepared("--chat-template", template)
            words = "1 rows have system messages that the chat template (of the job) does not print"
            self.assertEqual(sum(words in text for text in summary["warnings"]), told)

    # OpenAI writes a call with "content": null; Qwen3's template adds its content to text.
    def test_calls_without_content(self):
        call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
        answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        self.write_rows({"messages": [self.TURNS[0], answer]})
        calls = "m.content + (m.tool_calls | tojson if m.tool_calls else '')"
        texts = self.texts("--chat-template", CHATML.replace("m.content", calls))
        self.assertIn('"name": "f", "arguments": {}', texts[1][0])

    # Neither text as it stands nor an object: what the template can print.
    def test_arguments_of_calls(self):
        call = {"function": {"name": "f", "arguments": '{"x":1}'}}
        row = {"messages": [ROW["messages"][0], {"role": "assistant", "tool_calls": [call]}]}
        self.write_rows(row)
        print_arguments = "{{ messages[-1].tool_calls[0].function.arguments%s }}"
        for rest, text in ((" | tojson", '{"x": 1}'), (" + ''", '{"x":1}')):
            options = ("--chat-template", print_arguments % rest, "--assistant-only-loss", "0")
            self.assertEqual("".join(t for t, _ in self.texts(*options)), text)


if __name__ == "__main__":
    sys.exit(unittest.main())
