# SPDX-License-Identifier: Apache-2.0
"""What bash and zsh run to complete paddle.py: both ask `paddle.py completion words` for the words themselves."""

from __future__ import annotations

import shlex

from paddle_cluster.system import installation

_BASH = r"""# Completion of paddle.py for bash. Load it after your aliases: source <(python paddle.py completion bash)

# $1: index of the first word after paddle.py
_paddle_py_complete() {
    local -a words=() replies=()
    local i word cur lead= joins= kind value
    for ((i = $1; i <= COMP_CWORD; i++)); do  # bash parts --conf=x at the sign
        word=${COMP_WORDS[i]}
        if [[ ($word == = || $joins) && ${#words[@]} -gt 0 ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        joins=
        if [[ $word == = ]]; then joins=1; fi
    done
    cur=${words[${#words[@]} - 1]}
    mapfile -t replies < <(@LAUNCHER@ completion words -- "${words[@]}" 2> /dev/null)
    kind=${replies[0]}
    value=$cur
    if [[ $cur == --*=* ]]; then
        value=${cur#*=}
        lead=${cur%%=*}=
    fi
    COMPREPLY=()
    case $kind in
        files) mapfile -t COMPREPLY < <(compgen -f -- "$value") ;;
        dirs) mapfile -t COMPREPLY < <(compgen -d -- "$value") ;;
        *) COMPREPLY=("${replies[@]:1}") ;;
    esac
    if [[ $kind == words ]]; then
        if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]]; then
            compopt -o nospace 2> /dev/null
        fi
        if [[ $lead && $COMP_WORDBREAKS == *=* ]]; then COMPREPLY=("${COMPREPLY[@]#"$lead"}"); fi
    else
        compopt -o filenames 2> /dev/null
        if [[ $lead && $COMP_WORDBREAKS != *=* ]]; then COMPREPLY=("${COMPREPLY[@]/#/"$lead"}"); fi
    fi
}

_paddle_py() { _paddle_py_complete 1; }

# python paddle.py ...; every other use of python is completed as before
_paddle_py_python() {
    local i=1
    while ((i < COMP_CWORD)) && [[ ${COMP_WORDS[i]} == -* ]]; do ((i++)); done
    if ((i < COMP_CWORD)) && [[ ${COMP_WORDS[i]##*/} == paddle.py ]]; then
        _paddle_py_complete $((i + 1))
    elif [[ ${_paddle_py_before[${1##*/}]} ]]; then
        "${_paddle_py_before[${1##*/}]}" "$@"
    else
        COMPREPLY=()
        compopt -o bashdefault -o default 2> /dev/null
    fi
}

declare -gA _paddle_py_before
_paddle_py_register() {
    local name spec
    complete -F _paddle_py paddle.py paddle-cluster
    for name in python python3 python3.11 python3.12 python3.13 python3.14; do
        spec=$(complete -p "$name" 2> /dev/null)
        if [[ $spec =~ -F\ ([^ ]+) && ${BASH_REMATCH[1]} != _paddle_py_python ]]; then
            _paddle_py_before[$name]=${BASH_REMATCH[1]}
        fi
        complete -F _paddle_py_python "$name"
    done
    for name in "${!BASH_ALIASES[@]}"; do
        if [[ ${BASH_ALIASES[$name]} == *paddle.py* ]]; then complete -F _paddle_py "$name"; fi
    done
}
_paddle_py_register
"""

_ZSH = r"""#compdef paddle.py paddle-cluster
# Completion of paddle.py for zsh. Load it after compinit with: source <(python paddle.py completion zsh)

# $1: index of the first word after paddle.py
_paddle_py_complete() {
    local -a asked replies open
    local kind
    asked=("${(@)words[$1,CURRENT]}")
    replies=("${(@f)$(@LAUNCHER@ completion words -- "${asked[@]}" 2> /dev/null)}")
    kind=$replies[1]
    replies=("${(@)replies[2,-1]}")
    if [[ $PREFIX == --*=* ]]; then
        replies=("${(@)replies#*=}")
        compset -P 1 '*='
    fi
    case $kind in
        files) _files ;;
        dirs) _files -/ ;;
        *)
            open=("${(@M)replies:#*[=/]}")
            replies=("${(@)replies:#*[=/]}")
            (( $#open )) && compadd -Q -S '' -a open
            (( $#replies )) && compadd -Q -a replies
            ;;
    esac
}

_paddle_py() { _paddle_py_complete 2 }

# python paddle.py ...; every other use of python is completed as before. Aliases are expanded by zsh itself.
_paddle_py_python() {
    local -i i=2
    while (( i < CURRENT )) && [[ $words[i] == -* ]]; do (( i++ )); done
    if (( i < CURRENT )) && [[ ${words[i]:t} == paddle.py ]]; then
        _paddle_py_complete $(( i + 1 ))
    elif [[ -n $_paddle_py_before[${service:-python}] ]]; then
        $_paddle_py_before[${service:-python}] "$@"
    else
        _default
    fi
}

typeset -gA _paddle_py_before
_paddle_py_register() {
    local name
    for name in python python3 python3.11 python3.12 python3.13 python3.14; do
        if [[ -n ${_comps[$name]-} && $_comps[$name] != _paddle_py_python ]]; then
            _paddle_py_before[$name]=$_comps[$name]
        fi
        compdef _paddle_py_python $name
    done
    compdef _paddle_py paddle.py paddle-cluster
}
_paddle_py_register
"""

_TEXTS = {"bash": _BASH, "zsh": _ZSH}


def script(shell: str) -> str:
    """The text that a shell has to run; the words come from this launcher and this Python."""
    return _TEXTS[shell].replace("@LAUNCHER@", shlex.join(installation.argv()))
