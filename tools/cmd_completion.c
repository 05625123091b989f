/* `codistill completion`: scripts for shells, which ask the program itself for what may stand where. */
#include "tools/cmd.h"

#include "tools/arguments.h"
#include "tools/print.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: codistill completion bash|zsh|fish\n\n"
    "Prints a script that completes the arguments of codistill in a shell: commands, options, keys of a configuration, "
    "their values, models and files. What is installed has the scripts where the shells look for them. Otherwise:\n\n"
    "  bash\tsource <(codistill completion bash), in ~/.bashrc\n"
    "  zsh\tsource <(codistill completion zsh), in ~/.zshrc behind compinit\n"
    "  fish\tcodistill completion fish >~/.config/fish/completions/codistill.fish\n";

/*
 * The words so far are read from the line, since bash parts KEY=VALUE at the equals sign and wants what stands behind
 * it. Names of files are quoted by readline where there are no other words, which it must leave as they are.
 */
static const char bash_script[] =
    "# Completion of codistill's arguments for bash; `codistill completion bash` prints it.\n"
    "_codistill() {\n"
    "    local word cut='' line program file files='' sole breaks=${COMP_WORDBREAKS//[^=:]}\n"
    "    local -a words found\n"
    "    read -a words <<<\"${COMP_LINE:0:COMP_POINT}\" # without -r: `a\\ b` is one word\n"
    "    [[ ${COMP_LINE:COMP_POINT-1:1} != [[:space:]] ]] || words+=('')\n"
    "    word=${words[${#words[@]}-1]} program=${words[0]/#\\~/$HOME}\n"
    "    [[ -z $breaks ]] || cut=${word%\"${word##*[$breaks]}\"}\n"
    "    COMPREPLY=()\n"
    "    while IFS=$'\\t' read -r line _; do\n"
    "        case $line in\n"
    "            :files) files=yes ;;\n"
    "            \"$word\"*) COMPREPLY+=(\"${line#\"$cut\"}\") ;;\n"
    "        esac\n"
    "    done < <(\"$program\" --complete \"${words[@]:1}\" 2>/dev/null)\n"
    "    if [[ -n $files ]]; then\n"
    "        [[ $word != *=* ]] || word=${word#\"${cut:-${word%%=*}=}\"}\n"
    "        mapfile -t found < <(compgen -f -- \"$word\")\n"
    "        if [[ ${#COMPREPLY[@]} -eq 0 ]]; then\n"
    "            compopt -o filenames 2>/dev/null\n"
    "            COMPREPLY=(\"${found[@]}\")\n"
    "            return\n"
    "        fi\n"
    "        for file in \"${found[@]}\"; do\n"
    "            [[ ! -d $file ]] || file+=/\n"
    "            printf -v file %q \"$file\"\n"
    "            COMPREPLY+=(\"$file\")\n"
    "        done\n"
    "    fi\n"
    "    sole=${COMPREPLY[0]-}\n"
    "    case $sole in *[=/,]) compopt -o nospace 2>/dev/null ;; esac\n"
    "}\n"
    "complete -F _codistill codistill\n";

static const char zsh_script[] =
    "#compdef codistill\n"
    "# Completion of codistill's arguments for zsh; `codistill completion zsh` prints it.\n"
    "_codistill() {\n"
    "    local line word meaning files prefix=''\n"
    "    local -a names keys\n"
    "    local -a before=(\"${(@Q)words[2,CURRENT-1]}\")\n"
    "    local typed=${(Q)PREFIX}\n"
    "    [[ $typed != *=* ]] || { prefix=${typed%\"${typed##*=}\"}; compset -P '*=' }\n"
    "    for line in ${(f)\"$(\"${(Q)words[1]/#\\~/$HOME}\" --complete $before \"$typed\" 2>/dev/null)\"}; do\n"
    "        [[ $line != :files ]] || { files=yes; continue }\n"
    "        word=${line%%$'\\t'*} meaning=\n"
    "        [[ $line != *$'\\t'* ]] || meaning=:${line#*$'\\t'}\n"
    "        word=${word#\"$prefix\"}\n"
    "        word=${word//:/\\\\:}\n"
    "        if [[ $word == *= ]]; then keys+=(\"$word$meaning\"); else names+=(\"$word$meaning\"); fi\n"
    "    done\n"
    "    local code=1\n"
    "    (( ! $#names )) || { _describe -V 'argument' names && code=0 }\n"
    "    (( ! $#keys )) || { _describe -V 'key' keys -qS '' && code=0 }\n"
    "    [[ -z $files ]] || { _files && code=0 }\n"
    "    return code\n"
    "}\n"
    "if [[ $funcstack[1] == _codistill ]]; then _codistill \"$@\"; else compdef _codistill codistill; fi\n";

static const char fish_script[] =
    "# Completion of codistill's arguments for fish; `codistill completion fish` prints it.\n"
    "function __codistill_words\n"
    "    set -l words (commandline -opc)\n"
    "    eval (string escape -- (string replace -r '^~' $HOME -- $words[1])) --complete (string escape -- "
    "$words[2..-1] (commandline -ct)) 2>/dev/null\n"
    "end\n"
    "complete -c codistill -f -n 'not __codistill_words | string match -q :files'\n"
    "complete -c codistill -a \"(__codistill_words | string match -v :files)\"\n";

static const struct {
    const char *shell, *script;
} scripts[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};

int cod_cmd_completion(int argc, char **argv)
{
    const int code = cod_arguments_parse(argc, argv, help, NULL, 0, NULL, NULL);
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0] && code == COD_EXIT_OPERAND; i++)
        cod_complete_word(scripts[i].shell, NULL);
    if (code >= 0)
        return code == COD_EXIT_OPERAND ? COD_EXIT_OK : code;
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0] && argc - optind == 1; i++) {
        if (strcmp(argv[optind], scripts[i].shell) == 0) {
            cod_print_text(stdout, scripts[i].script);
            return COD_EXIT_OK;
        }
    }
    return cod_cmd_usage(argv[0], "name one shell: bash, zsh or fish");
}
