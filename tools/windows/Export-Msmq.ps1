# Exports the contents of Message Queuing on this machine as JSON, for: openmsmq adopt inventory --file EXPORT.json
#
# NEVER RUN ON WINDOWS SO FAR: written from the published specification [MC-MQAC] only. A PowerShell grammar
# (tree-sitter-powershell 0.26) parses it, and a test compares its members with the interfaces. Run it as an administrator in
# Windows PowerShell 5.1, and check "errors" in its output:  .\Export-Msmq.ps1 -Path EXPORT.json
# It changes nothing. Values that it cannot read are listed in "errors", with the reason.
param([string]$Path = 'EXPORT.json')

$errors = @{}
$accounts = @{}

function Read-Value($About, $Name, [scriptblock]$Read) {
    try { return (& $Read) } catch { $script:errors["${About}: $Name"] = $_.Exception.Message; return $null }
}

function Read-Accounts([byte[]]$Descriptor) {
    $raw = New-Object System.Security.AccessControl.RawSecurityDescriptor($Descriptor, 0)
    $sids = @($raw.Owner) + @($raw.DiscretionaryAcl | ForEach-Object { $_.SecurityIdentifier })
    foreach ($sid in $sids) {
        if ($sid -eq $null -or $script:accounts.ContainsKey($sid.Value)) { continue }
        $name = $null
        try { $name = $sid.Translate([System.Security.Principal.NTAccount]).Value } catch { $name = $null }
        if ($name) { $script:accounts[$sid.Value] = $name }
    }
}

function Read-Queue($PathName, $FormatName) {
    $about = if ($PathName) { $PathName } else { $FormatName }
    $queue = @{ path_name = $PathName; format_name = $FormatName }
    $managed = New-Object -ComObject MSMQ.MSMQManagement
    Read-Value $about 'Init' {
        if ($PathName) { $managed.Init([Type]::Missing, $PathName) }
        else { $managed.Init([Type]::Missing, [Type]::Missing, $FormatName) }
    } | Out-Null
    foreach ($name in 'FormatName', 'IsLocal', 'QueueType', 'ForeignStatus', 'TransactionalStatus', 'MessageCount', 'BytesInQueue') {
        $queue[$name] = Read-Value $about $name { $managed.$name }
    }
    $own = if ($queue['IsLocal'] -eq $false) { 'State', 'NextHops' } else { 'JournalMessageCount', 'BytesInJournal' }
    foreach ($name in $own) { $queue[$name] = Read-Value $about $name { $managed.$name } }
    if ($PathName) {
        $info = New-Object -ComObject MSMQ.MSMQQueueInfo
        $info.PathName = $PathName
        Read-Value $about 'Refresh' { $info.Refresh() } | Out-Null
        foreach ($name in 'Label', 'IsTransactional2', 'Journal', 'Quota', 'JournalQuota', 'Authenticate', 'PrivLevel', 'BasePriority', 'ServiceTypeGuid', 'MulticastAddress') {
            $queue[$name] = Read-Value $about $name { $info.$name }
        }
        $descriptor = Read-Value $about 'Security' { [byte[]]$info.Security }
        if ($descriptor) {
            $queue['Security'] = [Convert]::ToBase64String($descriptor)
            Read-Value $about 'accounts' { Read-Accounts $descriptor } | Out-Null
        }
    }
    return $queue
}

$application = New-Object -ComObject MSMQ.MSMQApplication
$private = @(Read-Value 'the machine' 'PrivateQueues' { $application.PrivateQueues })
$active = @(Read-Value 'the machine' 'ActiveQueues' { $application.ActiveQueues() })
$system = 'DEADLETTER', 'DEADXACT', 'JOURNAL' | ForEach-Object { 'DIRECT=OS:.\SYSTEM$;' + $_ }
$triggers = @(Get-Service -Name MSMQTriggers -ErrorAction SilentlyContinue | ForEach-Object { $_.Status.ToString() })

@{
    export = 1
    computer = $env:COMPUTERNAME
    taken = [int64]([DateTime]::UtcNow - [DateTime]'1970-01-01').TotalSeconds
    version = "$($application.MSMQVersionMajor).$($application.MSMQVersionMinor)"
    connected = Read-Value 'the machine' 'IsConnected' { $application.IsConnected }
    directory_server = Read-Value 'the machine' 'DirectoryServiceServer' { $application.DirectoryServiceServer }
    bytes = Read-Value 'the machine' 'BytesInAllQueues' { [string]$application.BytesInAllQueues }
    triggers = $triggers
    private = @($private | Where-Object { $_ } | ForEach-Object { Read-Queue $_ $null })
    active = @($active | Where-Object { $_ } | ForEach-Object { Read-Queue $null $_ })
    system = @($system | ForEach-Object { Read-Queue $null $_ })
    accounts = $accounts
    errors = $errors
} | ConvertTo-Json -Depth 6 | Set-Content -Path $Path -Encoding UTF8
