# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: an error text that is markup: of the terminal library, HTML, XML, a spreadsheet formula, a format string
# source: own
# expect: rejected
TEXT = (
    "[bold green]PASSED[/] [/] [link=file:///etc/passwd]x[/link] [/nonsense] [[ {0.__class__} %s %n ${HOME} "
    "</td></tr></table><script>document.title='PASSED'</script><img src=x onerror=alert(1)> &lt; ]]> <!-- "
    "=HYPERLINK(1) | `x` | \\u001b[2J"
)


def custom_kernel(data):
    raise RuntimeError(TEXT)
