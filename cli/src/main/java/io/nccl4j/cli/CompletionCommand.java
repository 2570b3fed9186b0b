package io.nccl4j.cli;

import picocli.AutoComplete;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

/** Writes the script with which a shell completes commands and options. */
@Command(
    name = "completion",
    description = "Writes a script that lets a shell complete commands and options.",
    footer = {
      "",
      "bash: source <(./nccl4j completion bash)",
      "zsh:  ./nccl4j completion zsh > FILE, and source FILE in ~/.zshrc"
    })
final class CompletionCommand implements Runnable {
  /** Shells whose completion there is. */
  enum Shell {
    bash,
    zsh
  }

  private final Context context;

  @Spec private CommandSpec spec;

  @Parameters(arity = "1", paramLabel = "SHELL", description = "${COMPLETION-CANDIDATES}")
  private Shell shell;

  CompletionCommand(Context context) {
    this.context = context;
  }

  @Override
  public void run() {
    if (shell == Shell.zsh) {
      // The rest is bash's way, which zsh has when it is told so.
      context.out().println("autoload -U +X compinit && compinit");
    }
    context.out().print(AutoComplete.bash("nccl4j", spec.root().commandLine()));
  }
}
